"""Scripts that cannot be captured end in one line with file and line, and leave nothing behind."""

import os
import time
from pathlib import Path

import pytest

from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from tests.support.sample import sample

H100 = PlannedDevice(name="NVIDIA H100", total_bytes=85 * 10**9, capability_major=9, sm_count=132)
MODEL = "import torch\nmodel = torch.nn.Linear(4, 4)\n"
STEP = "loss = model(torch.ones(2, 4)).sum()\nloss.backward()\ntorch.optim.SGD(model.parameters(), lr=0.1).step()\n"

FAILING = {
    "cuda_extension": (
        "import ctypes\nctypes.CDLL('libcudart_of_nowhere.so')\n", 2, "libcudart_of_nowhere.so",
    ),
    "no_step": (MODEL + "print(model(torch.ones(2, 4)).sum())\n", None, "ends without training a model"),
    "only_backward": (
        MODEL + "model(torch.ones(2, 4)).sum().backward()\n", None, "a backward pass without an optimizer step",
    ),
    "asks": (MODEL + "rate = float(input('learning rate? '))\n", 3, "asks for input"),
    "forks": (MODEL + "import os\nwhile True:\n    if os.fork() == 0:\n        __import__('time').sleep(600)\n",
              None, "more than 24 processes"),
    "exits": (MODEL + "raise SystemExit('no data folder')\n", 3, "no data folder"),
    "raises": (MODEL + "def load(path):\n    raise KeyError(path)\n\nload('train')\n", 4, "KeyError: 'train'"),
    "loops": (MODEL + "while True:\n    pass\n", None, "has not reached an optimizer step after"),
    "allocates": (MODEL + "rows = [b'x' * (1 << 28) for _ in range(400)]\n", None, "real memory"),
    "prints": (
        MODEL + "for _ in range(200_000):\n    print('x' * 100)\nraise ValueError('after 20 MB')\n", 5, "after 20 MB",
    ),
    "environment": (MODEL + "import os\nroot = os.environ['DATA_ROOT_NOT_SET']\n", 4, "DATA_ROOT_NOT_SET"),
    "syntax": ("import torch\nmodel = (\n", 2, "SyntaxError"),
    "network": ("import urllib.request\nurllib.request.urlopen('http://192.0.2.1/x', timeout=5)\n", 2, "URLError"),
    "takes_turns": (
        MODEL + "other = torch.nn.Linear(4, 4)\n"
        "first = torch.optim.SGD(model.parameters(), lr=0.1)\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)\n"
        "other(model(torch.ones(2, 4)).detach()).sum().backward()\nsecond.step()\n",
        None, "optimizers has stepped: they take turns, and SGD has not",
    ),
    "data_dependent": (
        MODEL + "x = model(torch.ones(2, 4).cuda())\nrows = x[x > 0.5].view(-1)\n", None, "ends without training",
    ),
}  # fmt: skip


def _request(script: Path, **changes: object) -> CaptureRequest:
    limits: dict[str, object] = {"seconds": 1200.0, "resident_bytes": 3 << 30, "processes": 24, **changes}
    return CaptureRequest(script=str(script), working_directory=str(script.parent), device=H100, **limits)


@pytest.mark.parametrize("name", sample(FAILING, kept=["no_step"]))
def test_one_line_that_says_where(name: str, tmp_path: Path) -> None:
    text, line, words = FAILING[name]
    script = tmp_path / f"{name}.py"
    script.write_text(text)
    changes = {"seconds": 8.0} if name == "loops" else {}
    with pytest.raises(CaptureError) as caught:
        capture(_request(script, **changes))
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.startswith(f"{script}:{line}: " if line else str(script))
    assert "--model" in message
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == [script.name]
    assert not _alive(script)


@pytest.mark.slow  # test_ways_out has files among what leads nowhere
def test_files_go_nowhere(tmp_path: Path) -> None:
    """A script that writes, moves and deletes captures well, and the folder is as it was.

    And it is not made to import what it does not name.
    """
    keep, home = tmp_path / "data.txt", Path.home() / f"plan-capture-{os.getpid()}"
    keep.write_text("kept")
    script = tmp_path / "writes.py"
    script.write_text(
        MODEL + "import pathlib, shutil\n"
        "pathlib.Path('out').mkdir()\npathlib.Path('out/log.txt').write_text('x')\n"
        f"pathlib.Path({str(home)!r}).write_text('x')\n"
        "pathlib.Path('data.txt').unlink()\nshutil.rmtree('out')\n"
        "torch.save({'a': 1}, 'state.pt')\nassert pathlib.Path('state.pt').exists()\n"
        "import sys\nassert 'transformers' not in sys.modules\n" + STEP
    )
    before = keep.stat().st_mtime_ns
    outcome, _ = capture(_request(script))
    assert outcome.stage == "captured"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.txt", "writes.py"]
    assert (keep.read_text(), keep.stat().st_mtime_ns) == ("kept", before)
    assert not home.exists()


def _alive(script: Path) -> list[str]:
    """Processes that still run the script; a killed one may take a moment to go."""
    for _ in range(600):
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if (
                    b"gpu_plan.planner.capture.child" in words
                    and os.fsencode(script.parent) in (entry / "environ").read_bytes()
                ):
                    found.append(entry.name)
        if not found:
            return []
        time.sleep(0.1)
    return found
