"""GPUs of the user's own: `plan.toml` and `[tool.plan]`."""

import argparse
import json
import os
from pathlib import Path

import pytest

from gpu_plan.commands import gpus
from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.config import user_gpus
from gpu_plan.planner.units import GIB, MIB

CARD = "memory = '46 GiB'\nbandwidth_gb_per_s = 900\nbfloat16_tflops = 180\ncompute_capability = '8.9'\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    parser = argparse.ArgumentParser()
    gpus.add_arguments(parser)
    assert gpus.run(parser.parse_args(words)) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_gpu_of_the_project_is_found_from_below(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        f"[project]\nname = 'x'\n[tool.plan.gpus.my-card]\n{CARD}context = '300 MiB'\n"
    )
    (project / "a" / "pyproject.toml").write_text("[project]\nname = 'says nothing about plan'\n")
    cluster = find_cluster("4xMY card")
    assert (cluster.spec, cluster.capacity_bytes, cluster.capacity_basis) == ("4xmy-card", 46 * GIB, "user")
    assert cluster.gpu.context.expected == 300 * MIB
    assert find_cluster("8xH100").gpu.short == "H100"


def test_the_nearest_file_counts_and_plan_toml_first(project: Path) -> None:
    (project / "plan.toml").write_text("[gpus.far]\nmemory = '1 GiB'\n")
    assert list(user_gpus()) == ["far"]
    (project / "a" / "pyproject.toml").write_text("[tool.plan.gpus.middle]\nmemory = '1 GiB'\n")
    assert list(user_gpus()) == ["middle"]
    (project / "a" / "plan.toml").write_text("[gpus.own]\nmemory = '1 GiB'\n")
    assert list(user_gpus()) == ["own"]


def test_the_list_marks_them(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, legend = listed(capsys)
    assert "yours" not in legend
    (project / "plan.toml").write_text(f"[gpus.my-card]\n{CARD}")
    out, legend = listed(capsys)
    rows = [line.split() for line in out.splitlines()]
    assert rows[1] == ["my-card", "46.0u", "900", "-", "180", "-", "-", "-"]
    assert len(rows) == len(before.splitlines()) + 1
    assert "u = yours" in legend
    assert max(map(len, [*out.splitlines(), *legend.splitlines()])) <= 80
    document = json.loads(listed(capsys, "my-card", "--json")[0])
    assert document["gpus"][0]["usable_basis"] == "user"
    assert document["gpus"][0]["facts"]["memory"]["source"] == "[tool.plan.gpus.my-card]"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("plan.toml", "[gpus.x\n", "is not valid TOML"),
        ("plan.toml", "x = '\xff'", "is not valid TOML"),
        ("plan.toml", "a = " + "[" * 5000, "is nested too deeply"),
        ("plan.toml", "# " + "x" * 2**20, "larger than 1 MiB"),
        (
            "plan.toml",
            "[gpu.x]\nmemory = 1",
            "unknown key gpu; known: options of plan by their names, such as seq-len. Did you mean gpus?",
        ),
        (
            "pyproject.toml",
            "[tool.plan.gpsu.x]\nmemory = 1",
            "unknown key tool.plan.gpsu; known: options of plan by their names, such as seq-len. Did you mean",
        ),
        ("pyproject.toml", "[tool]\nplan = 3", "tool.plan must be a table"),
        ("plan.toml", "gpus = 3", "gpus must be a string such as '8xH100', or hold tables"),
        ("plan.toml", "[gpus]\nx = 3", "[gpus.x] must be a table"),
        ("plan.toml", "[gpus.x]\n", "[gpus.x] needs memory"),
        ("plan.toml", "[gpus.x]\nmemory = '1 GiB'\nbandwith_gb_per_s = 3", "Did you mean bandwidth_gb_per_s"),
        ("plan.toml", "[gpus.4x]\nmemory = '1 GiB'", "is not a name that --gpus can read"),
        ("plan.toml", "[gpus.AUTO]\nmemory = '1 GiB'", "has the name of 'auto'"),
        ("plan.toml", "[gpus.a-b]\nmemory = '1 GiB'\n[gpus.AB]\nmemory = '1 GiB'", "has the name of 'a-b'"),
    ],
)
def test_what_makes_no_sense_is_one_line(project: Path, name: str, content: str, said: str) -> None:
    (project / name).write_text(content, encoding="latin-1")
    with pytest.raises(PlanError) as caught:
        find_cluster("8xH100")
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "plan.toml").write_text("")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InputError, match=r"plan.toml cannot be read: Permission denied"):
        user_gpus()
