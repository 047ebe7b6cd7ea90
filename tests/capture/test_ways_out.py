"""A script that tries every way out that we know, under each kind of wall: nothing outside is changed or reached."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.planner.capture.parent import CaptureError, capture
from tests.support import denied
from tests.support.ways.outside import request

ROOT = Path(__file__).parents[2]
LEAST = 100
CONTROLS = (
    "files: overwrite", "files: change times", "files: a lock that others wait for", "files: in /dev/shm",
    "network: TCP to this machine", "network: a socket in the file system", "network: an abstract socket",
    "network: a datagram from a pair of sockets", "processes: another's priority", "processes: another's environment",
    "processes: write into another's memory", "kernel: shared memory of System V", "kernel: semaphores of System V",
    "kernel: message queues of POSIX", "memory: in files that nobody maps (memfd)",
)  # fmt: skip


def tried(refused: str, *words: str) -> dict[str, object]:
    words = (sys.executable, "-P", "-m", "benchmarks.damage.ways_out", "--here", *words)
    done = subprocess.run(
        denied.command(refused, *words) if refused else [*words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("refused", ["", denied.NAMESPACES], ids=["namespaces", "landlock"])
def test_no_way_leads_out(refused: str) -> None:
    found = tried(refused)
    ways = found["tried"]
    assert isinstance(ways, list)
    assert [way for way in ways if way["verdict"] == "OUT"] == []
    assert found["changed"] == []
    assert len(ways) >= LEAST
    names = {way["way"] for way in ways}
    assert "files: overwrite" in names
    # The canaries are alive: the script itself could tell what it saw.
    assert "all tried" in found["outcome"]["message"]  # type: ignore[index]
    if not refused:
        assert {way["verdict"] for way in ways if way["way"] == "files: overwrite"} == {"went nowhere"}


@pytest.mark.slow
def test_without_walls_the_same_ways_lead_out() -> None:
    """What is looked for is seen where it happens; ways that harm nobody but the canaries are tried so."""
    found = tried(denied.EVERYTHING, "--unwalled", *CONTROLS)
    assert {way["way"]: way["verdict"] for way in found["tried"]} == dict.fromkeys(CONTROLS, "OUT")  # type: ignore[attr-defined]


@pytest.mark.slow
def test_words_of_a_script_are_no_escapes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('\\x1b]0;out\\x07')\nraise SystemExit('\\x1b[2J\\x07 gone\\u202e')\n")
    with pytest.raises(CaptureError) as caught:
        capture(request(script))
    assert "gone" in str(caught.value)
    assert not re.search(r"[\x00-\x1f\x7f\u202e]", str(caught.value))


def test_what_a_script_reports_itself_is_no_outcome(tmp_path: Path) -> None:
    """It can write into the pipe that is its only way out: whatever it says there ends in one line."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nfor number in range(3, 64):\n    try:\n        os.write(number, b'\\xff' * 100)\n"
        "    except OSError:\n        pass\nos._exit(0)\n"
    )
    with pytest.raises(CaptureError, match="ends the process before its first step"):
        capture(request(script))
