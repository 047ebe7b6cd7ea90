"""A project that holds a module of every name that a start here could import: none of them runs outside the walls.

Behind the walls a script's neighbours may stand in for packages, as they do under python; what they write goes nowhere.
"""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_plan.tui.engine.client import PlannerProcess
from gpu_plan.tui.engine.messages import Ask, Reply
from gpu_plan.tui.state import State
from tests.support.foreign import everything_installed, plant

SCRIPT = "import torch\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    plant(folder, tmp_path / "imported", everything_installed())
    told = f"open({str(tmp_path / 'imported')!r}, 'a').write(__file__)\n"
    (folder / "train.py").write_text(told + "import pytest, torch\n")
    factory = "import pytest, torch\n\ndef net():\n    return torch.nn.Linear(4, 4)\n"
    (folder / "own_factory.py").write_text(told + factory)
    jobs = {"script": "train.py", "factory": "own_factory:net"}
    tables = (f'[checks.{name}]\nmodel = "{model}"\ngpus = "1xT4"\n' for name, model in jobs.items())
    (folder / "plan.toml").write_text("".join(tables))
    return folder


def plan(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """And nothing of the project was run outside the walls."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpu_plan", *words],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    check(project)
    assert "Traceback" not in done.stderr
    return done


def check(project: Path) -> None:
    marker = project.parent / "imported"
    assert not marker.exists(), marker.read_text()


def test_there_is_one_of_every_name(project: Path) -> None:
    names = {path.stem for path in project.glob("*.py")}
    imported = subprocess.run(
        [sys.executable, "-P", "-c", "import sys, gpu_plan.cli, gpu_plan.planner.job.answer; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    tops = {name.partition(".")[0] for name in imported} - {"gpu_plan", "__main__"}
    assert len(tops) > 50
    assert {name for name in tops - names if not name.startswith(("_", "__editable__"))} == set()


def test_a_check_runs_script_and_factory_behind_walls(project: Path) -> None:
    """Both import a neighbour that is named like a package: it raises, behind the walls."""
    done = plan(project, "check", "--no-cache")
    assert done.stderr.count("not to be imported") == 2, done.stderr


def test_the_main_job(project: Path) -> None:
    done = plan(project, "own_factory:net", "--gpus", "1xT4", "--pin", "--no-cache")
    assert done.returncode == 2
    assert "not to be imported" in done.stderr


@pytest.mark.slow
def test_other_verbs(project: Path) -> None:
    for words in (("check", "--init"), ("models",), ("gpus",), ("runs",), ("doctor",), ("--help",)):
        plan(project, *words)


def test_the_explorer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started in the folder, and its process that traces."""
    monkeypatch.chdir(project)
    request = State(model="own_factory:net", gpus="1xT4").focus_request
    reply = asyncio.run(_traced(request))
    assert reply.kind == "refused", "its neighbour raises, or its module has no inputs"
    check(project)


@pytest.mark.slow
def test_the_explorers_own_process(project: Path) -> None:
    """`plan explore .` in a terminal of its own, until it has drawn something."""
    (project / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4}')
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project)
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="40")
        os.execv(sys.executable, [sys.executable, "-P", "-m", "gpu_plan", "explore", ".", "--gpus", "1xT4"])
    drawn, deadline = b"", time.monotonic() + 600
    try:
        while b"T4" not in drawn and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    drawn += os.read(terminal, 65536)
                except OSError:
                    break
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    check(project)
    assert b"T4" in drawn, drawn[-2000:]


async def _traced(request: object) -> Reply:
    told: asyncio.Queue[Reply] = asyncio.Queue()
    process = PlannerProcess("search", told.put_nowait, lambda kind, how: None)
    await process.start()
    try:
        process.send(Ask(number=1, kind="trace", request=request))  # type: ignore[arg-type]
        while True:
            reply = await asyncio.wait_for(told.get(), 1500)
            if reply.kind in ("traced", "refused", "broken"):
                return reply
    finally:
        await process.stop()
