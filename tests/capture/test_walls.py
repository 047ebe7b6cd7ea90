"""What stands around a captured script, on a kernel that offers everything, and on one that refuses namespaces."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import denied
from tests.support.sample import sample
from tests.support.small_disk import small_disk

STEP = (
    "import torch\nmodel = torch.nn.Linear(4, 4)\nmodel(torch.ones(2, 4)).sum().backward()\n"
    "torch.optim.SGD(model.parameters(), lr=0.1).step()\n"
)
WALLS = {"namespaces": "", "landlock": denied.NAMESPACES, "none": denied.EVERYTHING}
SAID = {
    "namespaces": "in namespaces of its own: what it wrote went nowhere",
    "landlock": "under Landlock and seccomp: it wrote into a scratch folder alone",
    "none": "without walls (--unwalled)",
}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def disk() -> Iterator[Path]:
    """A mount of its own below a folder that is none, with a folder on it."""
    with small_disk(8, within="/var/tmp") as place:
        (place / "data").mkdir()
        (place / "data" / "rows.txt").write_text("kept")
        yield place


def plan(walls: str, script: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "gpu_plan", str(script), "--gpus", "1xT4", "--pin", "--no-cache", *words]
    return subprocess.run(
        denied.command(WALLS[walls], *command) if WALLS[walls] else command,
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


@pytest.mark.parametrize("walls", sample(["namespaces", "landlock"], kept=["namespaces"]))
def test_a_folder_on_another_mount(walls: str, disk: Path, tmp_path: Path) -> None:
    """It is deleted where the script looks, or not at all; it is there afterwards; and the report says why."""
    script = tmp_path / "train.py"
    tries = "import shutil\ntry:\n    shutil.rmtree({0!r})\n    import os\n    assert not os.path.exists({0!r})\n"
    script.write_text(tries.format(str(disk / "data")) + "except PermissionError:\n    pass\n" + STEP)
    done = plan(walls, script, "--explain")
    assert done.returncode == 0, done.stderr
    assert (disk / "data" / "rows.txt").read_text() == "kept"
    assert SAID[walls] in " ".join(done.stdout.split())


def test_no_walls_no_script(tmp_path: Path) -> None:
    """One line that names both ways on; the script is not started."""
    script, marker = tmp_path / "train.py", tmp_path / "ran"
    script.write_text(f"open({str(marker)!r}, 'w')\n" + STEP)
    done = plan("none", script)
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert "no walls" in line
    assert "--unwalled" in line
    assert "--model" in line
    assert not marker.exists()


@pytest.mark.slow
def test_a_user_may_do_without(tmp_path: Path) -> None:
    """And the report says so."""
    script, marker = tmp_path / "train.py", tmp_path / "ran"
    script.write_text(f"open({str(marker)!r}, 'w')\n" + STEP)
    done = plan("none", script, "--unwalled", "--explain")
    assert done.returncode == 0, done.stderr
    assert marker.exists()
    assert SAID["none"] in " ".join(done.stdout.split())


def test_a_project_cannot_take_the_walls_down(tmp_path: Path) -> None:
    """Neither in its options nor in a job of its checks."""
    script = tmp_path / "train.py"
    script.write_text(STEP)
    (tmp_path / "plan.toml").write_text("unwalled = true\n")
    done = plan("none", script)
    assert done.returncode == 2
    assert "unwalled" in done.stderr
    assert "no walls" not in done.stderr
    (tmp_path / "plan.toml").write_text('[checks.own]\nmodel = "train.py"\ngpus = "1xT4"\nunwalled = true\n')
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpu_plan", "check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown key 'unwalled'" in done.stdout + done.stderr


def test_a_script_that_waits_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock alone ends nothing; a process that does nothing makes no progress."""
    from gpu_plan.planner.capture.parent import CaptureError, capture
    from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
    from gpu_plan.planner.walls.processes import watch

    monkeypatch.setattr(watch, "_STILL_SECONDS", 2.0)
    monkeypatch.setattr(watch, "_STILL_SHARE", 0.0)
    script = tmp_path / "train.py"
    script.write_text("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n")
    device = PlannedDevice(name="NVIDIA T4", total_bytes=16 * 10**9, capability_major=7, sm_count=40)
    request = CaptureRequest(script=str(script), working_directory=str(tmp_path), device=device, seconds=1200.0)
    with pytest.raises(CaptureError, match=r"has done nothing for 2 s: .*--script-seconds"):
        capture(request)
