"""A factory is the user's own code: it is imported, built and traced behind walls, and only data comes back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import denied

ROOT = Path(__file__).parents[2]
FACTORY = """
import os, torch
print("\\x1b[2Jprinted")
open("imported", "w").write("x")

def net():
    open({outside!r}, "w").write("x")
    return torch.nn.Linear(24, 16), {{"input": torch.zeros(2, 24)}}

def ends():
    os._exit(3)

def forges():
    for number in range(3, 64):
        try:
            os.write(number, b"J" + bytes(7) + b"\\x02{{}}")
        except OSError:
            pass
    os._exit(0)
"""


def plan(folder: Path, factory: str, *words: str, refused: str = "") -> "subprocess.CompletedProcess[str]":
    (folder / "own.py").write_text(FACTORY.format(outside=str(folder / "built")))
    command = [sys.executable, "-P", "-m", "gpu_plan", f"own:{factory}", "--gpus", "1xT4", "--pin", "--no-cache"]
    return subprocess.run(
        denied.command(refused, *command, *words) if refused else [*command, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def test_it_is_planned_and_leaves_nothing(tmp_path: Path) -> None:
    done = plan(tmp_path, "net", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["model"]["parameters"] == 24 * 16 + 16
    assert any("factory ran in namespaces" in entry["text"] for entry in document["assumptions"])
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]
    assert "printed" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["ends", "forges"])
def test_one_line_for_what_reports_nothing(factory: str, tmp_path: Path) -> None:
    done = plan(tmp_path, factory)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "own:" + factory in done.stderr.strip().splitlines()[-1]


def test_no_walls_no_factory(tmp_path: Path) -> None:
    done = plan(tmp_path, "net", refused=denied.EVERYTHING)
    assert done.returncode == 2
    assert "no walls" in done.stderr
    assert "--unwalled" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]
