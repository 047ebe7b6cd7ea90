"""`plan gpus`."""

import argparse
import json
import subprocess
import sys

import pytest

from gpu_plan.commands import gpus
from gpu_plan.planner.errors import InputError


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    gpus.add_arguments(parser)
    return gpus.run(parser.parse_args(argv))


def test_lists_every_gpu_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert max(map(len, [*lines, *err.splitlines()])) <= 80
    (h100,) = [line.split() for line in lines if line.startswith("H100 ")]
    assert h100 == ["H100", "79.1", "3350", "989.5", "989.5", "450", "8", "2.19"]
    assert "as torch counts it" in err


def test_one_gpu_shows_every_fact_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a100-80gb") == 0
    out = capsys.readouterr().out
    assert "NVIDIA A100-SXM4-80GB  (A100-80GB)" in out
    assert "bandwidth_gb_per_s: 2039" in out
    assert "nvidia-a100-datasheet" in out
    assert "79.15 GiB, torch" in out


def test_part_of_a_name_lists_those_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nvl") == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == ["H100-NVL", "H200-NVL"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("h100", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (gpu,) = document["gpus"]
    assert gpu["id"] == "h100-sxm-80"
    assert all(fact["source"] for fact in gpu["facts"].values())
    assert run("--json") == 0
    assert len(json.loads(capsys.readouterr().out)["gpus"]) > 60


@pytest.mark.parametrize("query", ["H1O0", "", "nvidia", "\x1b[31m"])
def test_unknown_query_is_an_input_error(query: str) -> None:
    with pytest.raises(InputError) as caught:
        run(query)
    assert str(caught.value).isprintable()


def test_no_heavy_import() -> None:
    code = (
        "import sys, gpu_plan.commands.gpus, gpu_plan.planner.hardware.detect\n"
        "print([m for m in ('torch', 'transformers', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
