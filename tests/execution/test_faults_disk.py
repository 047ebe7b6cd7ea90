"""Disks that are full, checkpoints that are torn, run folders that are broken, ports that are taken."""

import contextlib
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.checkpoints.find import newest_complete
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.resumption import lacks_room
from tests.support.fault_job import job
from tests.support.fault_runs import run, steps_done, wait_until
from tests.support.small_disk import small_disk


def fill(path: Path) -> None:
    """Writes until nothing is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.slow
def test_a_full_disk_during_a_checkpoint(tmp_path: Path) -> None:
    """It is the cause named, the checkpoint before is whole, and nothing is started anew; with room again the same
    command goes on where it was."""
    with small_disk(16) as disk:
        filler = disk / "filler"

        def inject(folder: RunFolder) -> None:
            wait_until(lambda: (disk / "step-4" / "plan-checkpoint.json").is_file())
            fill(filler)

        arguments = ("--steps", "40", "--pause", "0.2", "--save-every", "4", "--saves", str(disk))
        ended = run(job(tmp_path, *arguments, max_restarts=3), inject=inject)
        kept = newest_complete([disk])
        assert kept is not None
        assert kept.manifest.step >= 4
        assert ended.causes == ["disk_full"]
        first = ended.record.attempts[0]
        assert f"could not write {disk}/step-" in first.explanation
        assert f"the disk of {disk} has 0 B left" in first.explanation
        assert "no restart onto a full disk (0 B left" in ended.record.message
        assert f"step {kept.manifest.step} is kept in {kept.path}" in ended.record.message
        assert ended.folder.read_run().status == "failed"
        assert not ended.orphans
        filler.unlink()
        assert lacks_room(disk / "step-8", ended.folder, [disk]) == ""


@pytest.mark.slow
def test_a_full_disk_under_the_run_folder(tmp_path: Path) -> None:
    """Records, logs and checkpoints on one disk: what ended, and why, is written all the same."""
    with small_disk(8) as disk:

        def inject(folder: RunFolder) -> None:
            wait_until(lambda: (folder.path / "checkpoints" / "step-4" / "plan-checkpoint.json").is_file())
            fill(disk / "filler")

        arguments = ("--steps", "40", "--pause", "0.2", "--save-every", "4")
        ended = run(job(disk, *arguments, max_restarts=3), inject=inject)
        written = ended.folder.read_run()
        assert (written.status, written.exit_code) == ("failed", 1)
        assert [attempt.cause for attempt in written.attempts] == ["disk_full"]
        assert "no restart onto a full disk" in written.message
        assert written.message == ended.record.message
        culprit = ended.folder.read_rank(written.attempts[0].culprit or 0)
        assert culprit.status == "exception"
        assert culprit.error is not None
        assert culprit.error.full_disk is not None
        assert newest_complete([ended.folder.path]) is not None
        assert not ended.orphans


@pytest.mark.slow
def test_a_torn_checkpoint_is_skipped(tmp_path: Path) -> None:
    """A rank dies while its peer saves."""
    ended = run(job(tmp_path, "--steps", "8", "--save-every", "2", "--fault", "torn", "--at", "6", max_restarts=1))
    assert ended.causes == ["signal", "success"]
    second = ended.record.attempts[1]
    assert str(second.resumed_from).endswith("step-4")
    assert second.first_step == 5
    assert any("step-6" in line for line in second.changes)
    assert not ended.orphans


@pytest.mark.slow
def test_a_corrupt_checkpoint_is_skipped(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--steps", "8", "--save-every", "2", "--fault", "corrupt", "--at", "5", max_restarts=1))
    assert ended.causes == ["signal", "success"]
    second = ended.record.attempts[1]
    assert str(second.resumed_from).endswith("step-2")
    assert any("step-4" in line and "bytes" in line for line in second.changes)
    assert not ended.orphans


@pytest.mark.slow
def test_one_flipped_bit_of_a_large_file(tmp_path: Path) -> None:
    """As long as before, and far beyond the sizes of which everything is cheap to read: it was resumed once."""
    words = ("--steps", "8", "--width", "512", "--save-every", "2", "--fault", "flip", "--at", "5")
    ended = run(job(tmp_path, *words, max_restarts=1))
    assert ended.causes == ["signal", "success"]
    second = ended.record.attempts[1]
    assert str(second.resumed_from).endswith("step-2")
    assert any("step-4" in line and "model.safetensors is not what was saved" in line for line in second.changes)
    assert not ended.orphans


@pytest.mark.slow
def test_a_run_folder_that_breaks_while_the_job_runs(tmp_path: Path) -> None:
    """Records that make no sense are passed over, and a folder that vanishes does not end the training."""

    def inject(folder: RunFolder) -> None:
        wait_until(lambda: steps_done(folder) >= 2)
        (folder.path / "rank-1.json").write_bytes(b"\x00{")
        (folder.path / "plan.json").write_text("{}")
        wait_until(lambda: steps_done(folder) >= 6)
        shutil.rmtree(folder.path)

    ended = run(job(tmp_path, "--steps", "20", "--pause", "0.2"), inject=inject)
    assert ended.record.exit_code == 0
    assert not ended.orphans


@pytest.mark.slow
def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked = replace(job(tmp_path, "--steps", "3"), main_process_port=taken.getsockname()[1])
        ended = run(asked)
    assert ended.record.status == "succeeded" or "port" in ended.record.message
    assert not ended.orphans
