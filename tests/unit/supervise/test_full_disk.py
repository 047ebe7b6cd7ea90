"""A disk without room: what is said of it, and records that are written all the same. Small real disks, as root."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from gpu_plan.executor.records.rank import RankError, RankRecord
from gpu_plan.executor.reserve import RESERVE_BYTES, Reserve
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.runner.failure import describe
from gpu_plan.executor.runner.record import RankFile
from gpu_plan.executor.supervise.causes.classify import classify
from gpu_plan.executor.supervise.causes.evidence import Evidence
from gpu_plan.executor.supervise.ledger import Ledger, new_record
from gpu_plan.executor.supervise.resumption import lacks_room
from gpu_plan.planner.errors import UnreachableError
from tests.support.fault_job import job
from tests.support.small_disk import small_disk


def fill(path: Path) -> None:
    """Writes until nothing is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_run_json_is_ended_on_a_full_disk(tmp_path: Path) -> None:
    """In one piece, with the whole message; what was kept for it is gone afterwards."""
    with small_disk(1) as disk:
        folder = RunFolder(disk / "run")
        folder.path.mkdir()
        ledger = Ledger(folder, new_record(job(tmp_path), "run"))
        fill(disk / "filler")
        ended = ledger.end("failed", 1, "no room " * 400)
        assert folder.read_run() == ended
        assert ledger.problem is None
        assert sorted(path.name for path in folder.path.iterdir()) == ["run.json"]


def test_what_is_written_meanwhile_leaves_the_space_alone(tmp_path: Path) -> None:
    with small_disk(1) as disk:
        ledger = Ledger(RunFolder(disk), new_record(job(tmp_path), "run"))
        before = (disk / "run.json").read_bytes()
        fill(disk / "filler")
        for _ in range(3):
            ledger._set(ledger.record)
            assert ledger.problem is not None
        assert (disk / "run.json").read_bytes() == before
        assert (disk / ".run.json.reserve").stat().st_size == RESERVE_BYTES
        ledger.end("failed", 1, "")
        assert RunFolder(disk).read_run().status == "failed"


def test_a_run_that_has_no_room_at_all_does_not_begin(tmp_path: Path) -> None:
    with small_disk(1) as disk:
        fill(disk / "filler")
        with pytest.raises(UnreachableError, match="has no room for the records of a run"):
            Ledger(RunFolder(disk), new_record(job(tmp_path), "run"))
        assert sorted(path.name for path in disk.iterdir()) == ["filler"]


def test_a_run_that_ends_well_keeps_nothing(tmp_path: Path) -> None:
    ledger = Ledger(RunFolder(tmp_path), new_record(job(tmp_path), "run"))
    assert (tmp_path / ".run.json.reserve").stat().st_size == RESERVE_BYTES
    ledger.end("succeeded", 0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]


def test_a_rank_writes_its_last_record_on_a_full_disk() -> None:
    with small_disk(1) as disk:
        file = RankFile(disk, 0)
        assert file.write("first")
        fill(disk / "filler")
        assert not file.write("second" * 1000)
        assert (disk / "rank-0.json").read_text() == "first"
        assert file.write("last" * 30_000, last=True)
        assert file.final
        assert (disk / "rank-0.json").read_text() == "last" * 30_000


def test_the_space_is_given_back_where_it_cannot_be_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that copies on write: the blocks are freed first."""
    reserve = Reserve(tmp_path / "run.json")
    reserve.keep()
    sync, calls = os.fsync, []

    def full_once(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full_once)
    reserve.spend(b"{}")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"run.json": b"{}"}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "/data/x"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), ""),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), ""),
        (OSError(errno.EACCES, "Permission denied", "/data/x"), None),
        (RuntimeError("unexpected pos 64 vs 0"), None),
    ],
)
def test_what_an_error_says_of_the_disk(error: Exception, says: str | None) -> None:
    assert describe(error)[1].full_disk == says


def test_what_an_error_was_raised_from_counts() -> None:
    error = RuntimeError("unexpected pos 64 vs 0")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/data/x")
    assert describe(error)[1].full_disk == "/data/x"


def test_a_disk_that_is_not_known_is_not_started_onto(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert "no restart onto a full disk: make room and run the command again; nothing was saved" in lacks_room(
        None, folder, []
    )
    assert lacks_room(tmp_path / "step-4" / "model", folder, []) == ""


def rank(number: int, error: RankError | None, status: str = "exception") -> RankRecord:
    return RankRecord(
        run_id="r", attempt=1, rank=number, local_rank=number, world_size=2, pid=number, host="h", device="cpu",
        status=status, started=0.0, updated=float(number), error=error,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_full_disk_is_the_cause_and_not_what_torch_made_of_it() -> None:
    torn = RankError(type="RuntimeError", message="unexpected pos 64 vs 0", full_disk="/small/step-6")
    found = classify(Evidence(launcher_code=1, ranks=[rank(0, RankError(type="E", message="")), rank(1, torn)]))
    assert (found.cause, found.culprit) == ("disk_full", 1)
    assert "rank 1 could not write /small/step-6, its disk is full" in found.explanation
    unsaid = [rank(0, RankError(type="RuntimeError", message="PytorchStreamWriter failed writing file data/0"))]
    assert classify(Evidence(launcher_code=1, ranks=unsaid)).cause == "exception"
    disks = ("the disk of /small has 0 B left",)
    found = classify(Evidence(launcher_code=1, ranks=unsaid, full_disks=disks))
    assert found.cause == "disk_full"
    assert disks[0] in found.explanation
    other = [rank(0, RankError(type="ValueError", message="a bad sample"))]
    assert classify(Evidence(launcher_code=1, ranks=other, full_disks=disks)).cause == "exception"
