"""Modules of a user's that are named like ours, like torch, like the standard library's: none is imported by us.

Neither beside the script nor in the working directory, whatever is started; the script's real neighbours are found.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import gpu_plan
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.tui.engine.client import PlannerProcess
from gpu_plan.tui.engine.messages import Ask, Reply
from gpu_plan.tui.state import State
from tests.support.foreign import PARAMETERS, TRAINING, Project, make_project
from tests.support.inference_runs import execute, infer_plan, make_checkpoint, write_plan, write_prompts
from tests.support.matrix import MODEL

FACTORY = """
import torch
from my_helper import WIDTH
def net():
    return torch.nn.Linear(WIDTH, 16), {"input": torch.zeros(2, WIDTH)}
"""
PINNED = ("--gpus", "2xcpu", "--strategy", "ddp", "--pin")


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["apart", "together"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The script in a folder of its own and in the working directory; everything is planted in both."""
    return make_project(tmp_path_factory.mktemp("foreign"), together=request.param)


@pytest.fixture(scope="module")
def saved(project: Project) -> Path:
    """A plan for the script, which is captured for it."""
    path = project.directory / "saved.json"
    done = project.plan(str(project.script), *PINNED, "--json", "--save", str(path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"]["parameters"] == PARAMETERS
    return path


@pytest.mark.slow
def test_the_main_job(project: Project) -> None:
    """A model by its config, and one that a module of the working directory builds."""
    shutil.copytree(MODEL, project.directory / "tiny", dirs_exist_ok=True)
    done = project.plan("tiny", "--gpus", "1xT4", "--pin", "--json")
    assert done.returncode == 0, done.stderr
    (project.directory / "factory.py").write_text(FACTORY)
    (project.directory / "my_helper.py").write_text("WIDTH = 24\n")
    done = project.plan("factory:net", "--gpus", "1xT4", "--pin", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"]["parameters"] == PARAMETERS


@pytest.mark.slow
def test_a_check_captures_the_script(project: Project) -> None:
    name = os.path.relpath(project.script, project.directory)
    table = f'[checks.own]\nmodel = "{name}"\ngpus = "1xT4"\nbudget = ["fits"]\n'
    (project.directory / "plan.toml").write_text(table)
    try:
        done = project.plan("check", "--json")
    finally:
        (project.directory / "plan.toml").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [job["name"] for job in json.loads(done.stdout)["jobs"]] == ["own"]


@pytest.mark.slow
def test_a_launch(project: Project, saved: Path) -> None:
    done = project.plan("--plan", str(saved), "--execute", str(project.script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "told by 2 processes of 24" in done.stdout


@pytest.mark.slow
def test_a_launch_under_deepspeed_with_a_path_of_the_users(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate adds the working directory to PYTHONPATH then; the user's names it, and a folder in it, as well."""
    (project.directory / "lib").mkdir()
    (project.directory / "lib" / "in_lib.py").write_text("")
    (project.directory / "in_work.py").write_text("")
    plan = project.directory / "zero.json"
    options = ("--gpus", "2xcpu", "--strategy", "zero2", "--pin", "--save", str(plan))
    assert project.plan(str(project.script), *options).returncode == 0
    script = project.script.with_name("imports_more.py")
    script.write_text(f"import in_lib, in_work\n{TRAINING}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = [".", "lib", *filter(None, [os.environ.get("PYTHONPATH")])]
    result = gpu_plan.run(
        plan, script, working_directory=project.directory, environment={"PYTHONPATH": os.pathsep.join(words)}
    )
    project.check()
    assert result.check().succeeded
    assert {rank.actual.strategy for rank in result.ranks} == {"zero2"}


@pytest.mark.slow
def test_a_launch_of_one_process(project: Project) -> None:
    """Accelerate starts it without torchrun."""
    done = project.plan(str(project.script), "--gpus", "cpu", "--pin", "--execute", str(project.script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "told by 1 processes of 24" in done.stdout


@pytest.mark.slow
def test_the_explorers_processes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that traces a script, and one that evaluates what was traced."""
    monkeypatch.chdir(project.directory)
    request = State(model=str(project.script), gpus="2xT4").trying("strategy", "ddp").focus_request
    replies = asyncio.run(_explored(request))
    project.check()
    assert [reply.kind for reply in replies] == ["traced", "picture"]
    document = replies[-1].picture.document
    assert document.model.parameters == PARAMETERS


async def _explored(request: object) -> list[Reply]:
    """The last reply to `trace`, then the first to `picture`."""
    told: asyncio.Queue[Reply] = asyncio.Queue()
    ends: asyncio.Queue[str] = asyncio.Queue()
    processes = {
        kind: PlannerProcess(kind, told.put_nowait, lambda kind, how: ends.put_nowait(f"{kind} {how}"))
        for kind in ("replay", "search")
    }

    async def ask(kind: str, ask: Ask, final: tuple[str, ...]) -> Reply:
        processes[kind].send(ask)
        while True:
            reply = await asyncio.wait_for(told.get(), 1500)
            if reply.kind in final:
                return reply

    try:
        for process in processes.values():
            await process.start()
        traced = await ask("search", Ask(number=1, kind="trace", request=request), ("traced", "refused", "broken"))  # type: ignore[arg-type]
        assert traced.parcel is not None, traced.text
        processes["replay"].send(traced.parcel)
        drawn = await ask("replay", Ask(number=2, kind="picture", request=request), ("picture", "refused", "broken"))  # type: ignore[arg-type]
    finally:
        for process in processes.values():
            await process.stop()
    assert ends.empty()
    return [traced, drawn]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_prompts(project: Project, tmp_path: Path, ranks: int) -> None:
    """The built-in runner, and what is looked at before it; two ranks are started by torchrun."""
    model = make_checkpoint(tmp_path / "model")
    write_prompts(project.directory, 3)
    plan = write_plan(project.directory, infer_plan(model, tensor=ranks))
    words = ("--prompts", "prompts.jsonl", "--output", f"out-{ranks}.jsonl")
    done = execute(project.directory, plan, *words)
    project.check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((project.directory / f"out-{ranks}.jsonl").read_text().splitlines()) == 3


def test_a_converter(project: Project) -> None:
    """What is given to it is wrong: that it says so shows that it came as far."""
    done = subprocess.run(
        [*own_command("gpu_plan.executor.checkpoints.convert"), "missing", "to", "--layout", "dcp"],
        cwd=project.directory, env=own_environment(os.environ, directory=project.directory),
        capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    project.check()
    assert done.returncode == 2
    assert "usage" in done.stderr or "missing" in done.stderr
