"""What counts as a complete checkpoint, which is the newest, and what a plan can go on from."""

import json
import os
import time
from pathlib import Path

import pytest

from gpu_plan.executor.checkpoints.find import newest_complete, open_checkpoint, torn
from gpu_plan.executor.checkpoints.manifest import (
    DIGEST_LIMIT,
    MANIFEST_FILE,
    REPLICATED,
    Manifest,
    ManifestError,
    list_files,
    read_manifest,
    write_manifest,
)
from gpu_plan.executor.checkpoints.markers import Part, begin, complete, finish
from gpu_plan.planner.errors import InputError, UnreachableError


def facts(step: int = 4, **changed: object) -> Manifest:
    given = {"run_id": "r", "stack": "accelerate", "layout": REPLICATED, "strategy": "ddp", "world_size": 2}
    return Manifest(**{**given, "step": step, "samples": 100, "created": time.time(), **changed})  # type: ignore[arg-type]


def save(folder: Path, step: int = 4, **changed: object) -> Path:
    """A checkpoint with one large and one small file."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(DIGEST_LIMIT + 1))
    (folder / "inner").mkdir()
    (folder / "inner" / "scheduler.bin").write_bytes(b"schedule")
    write_manifest(folder, facts(step, files=list_files(folder, flush=True), **changed))
    return folder


def part(folder: Path, rank: int, key: str = "r/1/4/0") -> Part:
    return Part(folder=folder, rank=rank, key=key, samples=16)


def test_a_manifest_survives_writing_and_reading(tmp_path: Path) -> None:
    written = facts(parameter_names=("a", "b"), versions={"torch": "2"})
    write_manifest(tmp_path, written)
    assert read_manifest(tmp_path) == written


def test_the_manifest_follows_the_last_rank(tmp_path: Path) -> None:
    parts = [part(tmp_path, rank) for rank in range(2)]
    for each in parts:
        begin(each)
    finish(parts[1])
    assert not complete(parts[1], facts())
    assert newest_complete([tmp_path]) is None
    finish(parts[0])
    assert complete(parts[0], facts())
    found = newest_complete([tmp_path])
    assert found is not None
    assert found.manifest.samples == 100 + 2 * 16


def test_marks_of_an_earlier_saving_do_not_count(tmp_path: Path) -> None:
    for rank in range(2):
        begin(part(tmp_path, rank, "r/1/2/0"))
        finish(part(tmp_path, rank, "r/1/2/0"))
    assert complete(part(tmp_path, 0, "r/1/2/0"), facts(2))
    begin(part(tmp_path, 0))
    assert newest_complete([tmp_path]) is None, "the folder is being overwritten"
    finish(part(tmp_path, 0))
    assert not complete(part(tmp_path, 0), facts())


def test_a_rank_that_saves_alone_is_known_once_the_others_have_passed(tmp_path: Path) -> None:
    begin(part(tmp_path, 0))
    finish(part(tmp_path, 0))
    assert not complete(part(tmp_path, 0), facts())
    assert complete(part(tmp_path, 0), facts(), only_this_rank=True)
    assert not read_manifest(tmp_path).random_states


def test_the_newest_is_that_of_most_steps(tmp_path: Path) -> None:
    save(tmp_path / "step-9", 9)
    save(tmp_path / "step-10", 10)
    save(tmp_path / "other-run", 99, run_id="x")
    found = newest_complete([tmp_path / "absent", tmp_path], run_id="r")
    assert found is not None
    assert found.path == tmp_path / "step-10"
    assert newest_complete([tmp_path / "step-9"]) is not None
    save(tmp_path / "converted", 10, converted_from="step-10")
    assert newest_complete([tmp_path], run_id="r") == found


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _change(folder: Path) -> None:
    (folder / "inner" / "scheduler.bin").write_bytes(b"SCHEDULE")


def _cut_manifest(folder: Path) -> None:
    path = folder / MANIFEST_FILE
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_cut, "model.safetensors has 65,536 bytes, 65,537 were saved"),
        (_change, "inner/scheduler.bin is not what was saved"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: (folder / MANIFEST_FILE).unlink(), "has no plan-checkpoint.json"),
        (_cut_manifest, "is not complete JSON"),
        (lambda folder: (folder / MANIFEST_FILE).write_text("[]"), "holds no object"),
    ],
)
def test_a_torn_one_is_passed_over_and_says_why(tmp_path: Path, harm: object, says: str) -> None:
    save(tmp_path / "step-2", 2)
    broken = save(tmp_path / "step-4", 4)
    begin(part(tmp_path / "unrelated", 0))
    manifest = (broken / MANIFEST_FILE).read_bytes()
    begin(part(broken, 0))
    (broken / MANIFEST_FILE).write_bytes(manifest)
    harm(broken)  # type: ignore[operator]
    found = newest_complete([tmp_path])
    assert found is not None
    assert found.path == tmp_path / "step-2"
    reasons = {each.path.name: each.reason for each in torn([tmp_path])}
    assert says in reasons["step-4"]
    assert set(reasons) == {"step-4", "unrelated"}
    with pytest.raises(InputError, match="is not a complete checkpoint") as raised:
        open_checkpoint(broken)
    assert "\n" not in str(raised.value)


def test_weights_alone_are_not_resumed_from(tmp_path: Path) -> None:
    save(tmp_path / "step-2", 2, resumable=False)
    assert newest_complete([tmp_path]) is None


def test_a_folder_that_is_absent_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        open_checkpoint(tmp_path / "nothing")


@pytest.mark.parametrize(
    "changed",
    [
        {"step": "4"},
        {"layout": "other"},
        {"files": {"../../etc/passwd": {"bytes": 1}}},
        {"files": []},
        {"files": {"a": {"bytes": True}}},
        {"schema_version": 2},
        {"world_size": None},
        {"created": "never"},
        {"parameter_names": [1]},
    ],
)
def test_nonsense_in_a_manifest_is_no_checkpoint(tmp_path: Path, changed: dict[str, object]) -> None:
    folder = save(tmp_path / "step-2", 2)
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert newest_complete([tmp_path]) is None
    with pytest.raises(InputError):
        open_checkpoint(folder)


def test_a_manifest_that_is_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).mkdir()
    with pytest.raises(ManifestError):
        read_manifest(tmp_path)
