"""What counts as a complete checkpoint, which is the newest, and what a plan can go on from."""

import hashlib
import json
import os
import random
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest

from gpu_plan.executor.checkpoints import digest, markers
from gpu_plan.executor.checkpoints.digest import PIECE, Digest, digest_files
from gpu_plan.executor.checkpoints.find import newest_complete, open_checkpoint, search
from gpu_plan.executor.checkpoints.manifest import (
    MANIFEST_FILE,
    REPLICATED,
    Manifest,
    ManifestError,
    list_files,
    read_manifest,
    sealed,
    write_manifest,
)
from gpu_plan.executor.checkpoints.markers import Part, begin, complete, finish
from gpu_plan.planner.errors import InputError, UnreachableError
from tests.support.flips import flip


def facts(step: int = 4, **changed: object) -> Manifest:
    given = {"run_id": "r", "stack": "accelerate", "layout": REPLICATED, "strategy": "ddp", "world_size": 2}
    return Manifest(**{**given, "step": step, "samples": 100, "created": time.time(), **changed})  # type: ignore[arg-type]


def save(folder: Path, step: int = 4, **changed: object) -> Path:
    """A checkpoint with one large and one small file."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(65_537))
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


def test_what_another_rank_is_writing_is_none_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks write their marks at the same moment: one that took the other's unfinished file for its own found it gone,
    and left the checkpoint without a manifest."""
    save(tmp_path / "4")
    for rank in range(2):
        begin(part(tmp_path / "4", rank))
    unfinished = tmp_path / "4" / f"..plan-rank-1.json.{os.getpid()}.tmp"
    unfinished.write_text("{")
    temporary = tmp_path / "4" / "metadata.tmp"
    temporary.write_bytes(b"half")
    read = markers.digest_files

    def gone_meanwhile(paths: Iterable[Path], **options: bool) -> dict[Path, Digest]:
        found = list(paths)
        assert unfinished not in found
        temporary.unlink(missing_ok=True)
        return read(found, **options)

    monkeypatch.setattr(markers, "digest_files", gone_meanwhile)
    for rank in range(2):
        finish(part(tmp_path / "4", rank))
    assert complete(part(tmp_path / "4", 1), facts())
    found = newest_complete([tmp_path / "4"])
    assert found is not None
    assert set(found.manifest.files) == {"model.safetensors", "inner/scheduler.bin"}


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


def _flip(folder: Path) -> None:
    flip(folder / "model.safetensors", 40_000)


def _cut_manifest(folder: Path) -> None:
    path = folder / MANIFEST_FILE
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_cut, "model.safetensors has 65,536 bytes, 65,537 were saved"),
        (_flip, "model.safetensors is not what was saved: it is damaged somewhere in bytes 0 to 65,536"),
        (lambda folder: flip(folder / MANIFEST_FILE, 30), "plan-checkpoint.json is damaged: its digest differs"),
        (lambda folder: flip(folder / MANIFEST_FILE, -20), "plan-checkpoint.json is damaged: it does not end with"),
        (_change, "inner/scheduler.bin is not what was saved: it is damaged somewhere in bytes 0 to 7"),
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
    reasons = {each.path.name: each.reason for each in search([tmp_path]).skipped}
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
        {"schema_version": 3},
        {"schema_version": True},
        {"files": {"a": {"bytes": 1, "digest": 5}}},
        {"world_size": None},
        {"created": "never"},
        {"parameter_names": [1]},
    ],
)
def test_nonsense_in_a_manifest_is_no_checkpoint(tmp_path: Path, changed: dict[str, object]) -> None:
    folder = save(tmp_path / "step-2", 2)
    path = folder / MANIFEST_FILE
    path.write_bytes(sealed(json.loads(path.read_text()) | {"files": {}} | changed))
    assert newest_complete([tmp_path]) is None
    with pytest.raises(InputError):
        open_checkpoint(folder)


def test_what_the_nonsense_is_put_into_is_sound(tmp_path: Path) -> None:
    folder = save(tmp_path / "step-2", 2)
    path = folder / MANIFEST_FILE
    path.write_bytes(sealed(json.loads(path.read_text()) | {"files": {}}))
    assert newest_complete([tmp_path]) is not None


def test_a_manifest_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It covers sizes, and the content of small files."""
    folder = save(tmp_path / "step-2", 2)
    content = {name: (folder / name).read_bytes() for name in ("model.safetensors", "inner/scheduler.bin")}
    files = {
        name: {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest() if len(value) < 65_537 else None}
        for name, value in content.items()
    }
    value = json.loads((folder / MANIFEST_FILE).read_text()) | {"schema_version": 1, "files": files}
    del value["crc32"]
    (folder / MANIFEST_FILE).write_text(json.dumps(value, indent=1))
    assert open_checkpoint(folder).manifest.step == 2
    _change(folder)
    with pytest.raises(InputError, match=r"scheduler\.bin is not what was saved: its digest differs"):
        open_checkpoint(folder)


def test_a_flip_anywhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit of a byte, at the edges of pieces and at places drawn at random; undone again, all is whole."""
    monkeypatch.setattr(digest, "PIECE", 8192)
    monkeypatch.setattr(digest, "_BLOCK", 4096)
    folder = save(tmp_path / "step-2", 2)
    size = {name: (folder / name).stat().st_size for name in ("model.safetensors", MANIFEST_FILE)}
    chance = random.Random(14)
    places = [("model.safetensors", at) for at in (0, 4095, 4096, 8191, 8192, 65_535, 65_536)]
    places += [("inner/scheduler.bin", at) for at in range(8)]
    places += [(name, chance.randrange(size[name])) for name in size for _ in range(40)]
    for number, (name, at) in enumerate(places):
        flip(folder / name, at, 1 << number % 8)
        assert newest_complete([tmp_path]) is None, (name, at)
        flip(folder / name, at, 1 << number % 8)
    assert newest_complete([tmp_path]) is not None


def test_what_ranks_have_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads its own shards; what has changed since is read once more."""
    names = ("model.safetensors", "random_states_0.pkl", "random_states_1.pkl", "optimizer_0/__1_0.distcp")
    parts = [part(tmp_path, rank) for rank in range(2)]
    for each in parts:
        begin(each)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    read: list[str] = []

    def noting(paths: object, **options: bool) -> object:
        given = list(paths)  # type: ignore[call-overload]
        read.extend(path.relative_to(tmp_path).as_posix() for path in given)
        return digest_files(given, **options)

    monkeypatch.setattr("gpu_plan.executor.checkpoints.markers.digest_files", noting)
    monkeypatch.setattr("gpu_plan.executor.checkpoints.manifest.digest_files", noting)
    finish(parts[1])
    assert sorted(read) == ["optimizer_0/__1_0.distcp", "random_states_1.pkl"]
    finish(parts[0])
    assert sorted(read) == sorted(names)
    (tmp_path / "model.safetensors").write_bytes(b"changed afterwards")
    read.clear()
    assert complete(parts[0], facts())
    assert read == ["model.safetensors"]
    assert open_checkpoint(tmp_path).manifest.files.keys() == set(names)


@pytest.mark.parametrize("name", ["swapped pages", "a page of zeros", "one page stale", "shifted by a word", "longer"])
def test_what_disks_do_to_blocks_is_found(name: str, tmp_path: Path) -> None:
    content = os.urandom(4 * 4096 + 100)
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    folder = tmp_path / "step-2"
    folder.mkdir()
    (folder / "large").write_bytes(content)
    write_manifest(folder, facts(files=list_files(folder)))
    assert newest_complete([tmp_path]) is not None
    harmed = {
        "swapped pages": [pages[0], pages[2], pages[1], *pages[3:]],
        "a page of zeros": [pages[0], bytes(4096), *pages[2:]],
        "one page stale": [pages[0], pages[0], *pages[2:]],
        "shifted by a word": [content[-8:], content[:-8]],
        "longer": [*pages, bytes(8)],
    }[name]
    (folder / "large").write_bytes(b"".join(harmed))
    assert newest_complete([tmp_path]) is None


def test_a_file_of_several_pieces(tmp_path: Path) -> None:
    """Where the damage lies is told to a piece."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2 * PIECE + 1)
    write_manifest(tmp_path, facts(files=list_files(tmp_path)))
    assert len(read_manifest(tmp_path).files["large"].digest or "") == 3 * 8
    flip(path, PIECE + 5)
    with pytest.raises(InputError, match="in bytes 16,777,216 to 33,554,431"):
        open_checkpoint(tmp_path)
    flip(path, PIECE + 5)
    flip(path, -1)
    with pytest.raises(InputError, match="in bytes 33,554,432 to 33,554,432"):
        open_checkpoint(tmp_path)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    """Somebody may read a pipe, or nobody: neither is a checkpoint."""
    folder = save(tmp_path / "step-2", 2)
    (folder / "inner" / "scheduler.bin").unlink()
    os.mkfifo(folder / "inner" / "scheduler.bin")
    with pytest.raises(InputError, match=r"scheduler\.bin is not a regular file"):
        open_checkpoint(folder)
    (folder / MANIFEST_FILE).unlink()
    os.mkfifo(folder / MANIFEST_FILE)
    with pytest.raises(InputError, match=r"plan-checkpoint.json is not a regular file of less than 256 MiB"):
        open_checkpoint(folder)
    assert newest_complete([tmp_path]) is None


def test_a_manifest_that_is_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).mkdir()
    with pytest.raises(ManifestError):
        read_manifest(tmp_path)


# -- what is near the edge -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, -1, 1.0, "4"])
@pytest.mark.parametrize("name", ["step", "world_size", "attempt"])
def test_counts_are_whole_numbers_from_zero(tmp_path: Path, name: str, value: object) -> None:
    content = asdict(facts())
    (tmp_path / MANIFEST_FILE).write_bytes(sealed({**content, name: value}))
    with pytest.raises(ManifestError, match="does not hold what it should"):
        read_manifest(tmp_path)


def test_a_file_outside_of_the_folder_is_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    folder = save(tmp_path / "step-4")
    (tmp_path / "secret").write_bytes(b"schedule")
    known = read_manifest(folder)
    entry = known.files["inner/scheduler.bin"]
    write_manifest(folder, facts(files={**known.files, "../secret": entry}))
    (one,) = search([tmp_path]).skipped
    assert "'../secret', which lies outside" in one.reason


def test_before_a_step_is_before_it_and_folders_are_looked_into_three_deep(tmp_path: Path) -> None:
    save(tmp_path / "step-4", 4)
    save(tmp_path / "a" / "b" / "step-2", 2)
    save(tmp_path / "a" / "b" / "c" / "step-3", 3)
    newest = newest_complete([tmp_path])
    assert newest is not None
    assert newest.manifest.step == 4
    older = newest_complete([tmp_path], before=4)
    assert older is not None
    assert older.manifest.step == 2, "step 3 lies four folders deep"


def test_what_is_flushed_is_synchronised_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised: list[int] = []
    monkeypatch.setattr(os, "fsync", synchronised.append)
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"x")
    digest_files(sorted(tmp_path.iterdir()), flush=False)
    assert not synchronised
    digest_files(sorted(tmp_path.iterdir()), flush=True)
    assert len(synchronised) == 3
