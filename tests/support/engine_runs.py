"""Runs at an engine: started as a user would, harmed, and held to an uninterrupted one."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_plan.executor.names import attempt_folder
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.planner.plan.files import save
from tests.support.fault_job import saved_plan
from tests.support.fault_runs import steps_done, wait_until

PLAN = (sys.executable, "-m", "gpu_plan")
SLOW = Path(__file__).parents[1] / "engines" / "slow_loop.py"
STEPS = 24


def write_plan(folder: Path, *, nodes: int = 2, each: int = 1) -> None:
    """`plan.json` for so many CPU nodes with so many ranks on each."""
    saved = saved_plan(processes=nodes * each)
    spec = f"{nodes}x{each}xcpu" if nodes > 1 else f"{each}xcpu"
    cluster = {**saved.cluster, "spec": spec, "nodes": nodes, "gpus_per_node": each}
    save(replace(saved, cluster=cluster), folder / "plan.json", force=True)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How runs are started at one engine."""

    on: Sequence[str]
    """`--on` and what goes with it."""
    variables: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def start(
        self,
        folder: Path,
        *words: str,
        script: Path = SLOW,
        script_words: Sequence[str] = (),
        nodes: int = 2,
        each: int = 1,
    ) -> "subprocess.Popen[str]":
        """`plan --execute` of a script, under the folder's plan, which is made where there is none."""
        if not (folder / "plan.json").exists():
            write_plan(folder, nodes=nodes, each=each)
        command = (*PLAN, "--plan", "plan.json", "--execute", str(script), *self.on, *words, "--", *script_words)
        return subprocess.Popen(
            command, cwd=folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def goes_on(
        self, folder: Path, harm: Callable[[RunFolder], object], whole: Mapping[int, float | None], *words: str
    ) -> RunRecord:
        """Runs slow steps, does `harm` after the seventh, and holds the losses to the uninterrupted run's."""
        process = self.start(folder, *words, script_words=("--pause", "0.7"))
        run = at_step(folder, 7)
        harm(run)
        record, output = ended(process, folder)
        assert record.status == "succeeded", output
        assert len(record.attempts) == 2, output
        held_to(run, whole)
        return record


def held_to(run: RunFolder, whole: Mapping[int, float | None]) -> None:
    """Every attempt after the first begins at most three steps back, and the losses are those of `whole`."""
    attempts = run.read_run().attempts
    for before, after in itertools.pairwise(attempts):
        assert before.ended is not None
        assert after.resumed_from is not None
        ranks = RunFolder(run.path / attempt_folder(before.number)).ranks()
        done = max((rank.steps[-1].step for rank in ranks if rank.steps), default=after.first_step - 1)
        assert 0 <= done - (after.first_step - 1) <= 3  # steps since the last whole checkpoint
    assert losses(run) == whole


def ended(process: "subprocess.Popen[str]", folder: Path, seconds: int = 1200) -> tuple[RunRecord, str]:
    """The record of the run that the command followed, whose code it ended with, and what it printed."""
    output, _ = process.communicate(timeout=seconds)
    record = list_runs(folder)[-1].read_run()
    assert process.returncode == record.exit_code, output
    return record, output


def at_step(folder: Path, step: int, seconds: int = 1800) -> RunFolder:
    """The run below `folder`, once it has done that step."""
    assert wait_until(lambda: list_runs(folder) and steps_done(list_runs(folder)[-1]) >= step, seconds)
    return list_runs(folder)[-1]


def losses(run: RunFolder) -> dict[int, float | None]:
    """By step, what rank 0 recorded in the last attempt that did it."""
    found: dict[int, float | None] = {}
    for attempt in run.read_run().attempts:
        moved = run.path / attempt_folder(attempt.number)
        for rank in RunFolder(moved if moved.is_dir() else run.path).ranks():
            if rank.rank == 0:
                found |= {step.step: step.loss for step in rank.steps}
    return found
