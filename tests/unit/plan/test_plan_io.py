"""Saved plans: written whole or not at all, read strictly, refused when stale."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.plan import files as plan_io
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.plan.files import load, save, write_text
from gpu_plan.planner.plan.saved import SavedPlan, saved_plan, stale_reasons
from tests.support.plan_example import H100X8, llama_on_8xh100, nothing_fits


@pytest.fixture
def plan() -> SavedPlan:
    return saved_plan(llama_on_8xh100())


def test_saved_and_loaded(plan: SavedPlan, tmp_path: Path) -> None:
    save(plan, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan
    assert plan.plan == llama_on_8xh100().best
    assert os.listdir(tmp_path) == ["plan.json"]


def test_another_candidate_can_be_saved() -> None:
    document = llama_on_8xh100()
    assert saved_plan(document, document.plans[2]).plan == document.plans[2]
    with pytest.raises(ValueError, match="nothing fits"):
        saved_plan(nothing_fits())


def test_an_existing_file_needs_force(plan: SavedPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already: give --force"):
        save(plan, path)
    assert path.read_text() == "mine"
    save(plan, path, force=True)
    assert load(path) == plan


def test_a_link_is_written_through(plan: SavedPlan, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "plan.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real/plan.json")
    with pytest.raises(UsageError):
        save(plan, tmp_path / "link.json")
    save(plan, tmp_path / "link.json", force=True)
    assert (tmp_path / "link.json").is_symlink()
    assert load(tmp_path / "real" / "plan.json") == plan


def test_a_failed_write_leaves_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan_io.os, "fsync", no_space)
    with pytest.raises(UnreachableError, match="cannot be written: No space left"):
        write_text(path, "new", force=True)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.md"]


def test_an_interrupt_leaves_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_io.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "report.md", "new")
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder: name a file in it"):
        write_text(tmp_path, "text")
    with pytest.raises(UnreachableError, match="cannot be written: No such file or directory"):
        write_text(tmp_path / "absent" / "plan.json", "text")
    write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_long_name_is_kept(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 250), "text")
    assert (tmp_path / ("n" * 250)).read_text() == "text"


def test_files_that_are_no_saved_plan(plan: SavedPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UnreachableError, match="there is no plan"):
        load(path)
    path.write_text(to_json(llama_on_8xh100()))
    with pytest.raises(InputError, match="is not a saved plan: `--save FILE` writes one"):
        load(path)
    save(plan, path, force=True)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is not valid JSON"):
        load(path)


@pytest.mark.parametrize("section", ["cluster", "workload"])
def test_an_edited_input_is_refused(section: str, plan: SavedPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save(plan, path)
    value = json.loads(path.read_text())
    value[section].update({"gpus": 4} if section == "cluster" else {"seq_len": 8192})
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=r"digest is .* but the rest says"):
        load(path)
    del value["digest"]
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="has no digest"):
        load(path)


def test_digest_counts_inputs_only(plan: SavedPlan) -> None:
    assert replace(plan, command="plan x", warnings=("w",)).digest == plan.digest
    assert replace(plan, cluster=dict(reversed(plan.cluster.items()))).digest == plan.digest
    basis = plan.workload["basis"]
    assert isinstance(basis, dict)
    captured = {**plan.workload, "basis": {**basis, "seq_len": "captured"}}
    assert replace(plan, workload=captured).digest == plan.digest
    changed = [
        replace(plan, cluster={**plan.cluster, "usable_bytes": 1}),
        replace(plan, workload={**plan.workload, "seq_len": 1}),
        replace(plan, created_with={**plan.created_with, "torch": "2.14.0"}),
        replace(plan, model=replace(plan.model, config_digest="0")),
    ]
    assert len({plan.digest, *(other.digest for other in changed)}) == 5


def test_what_is_stale_is_named(plan: SavedPlan) -> None:
    assert stale_reasons(plan) == ()
    assert stale_reasons(plan, model=plan.model, cluster=H100X8, workload=plan.workload) == ()
    reasons = stale_reasons(
        plan,
        model=replace(plan.model, config_digest="abc"),
        cluster={**H100X8, "gpu": "A100"},
        versions={**plan.created_with, "torch": "2.14.0"},
    )
    assert len(reasons) == 3
    assert reasons[0].startswith("model config was 6f4c4f7c")
    assert reasons[1:] == ("cluster gpu was H100, is A100", "version of torch was 2.13.0, is 2.14.0")
