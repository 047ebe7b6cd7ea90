"""Runs with a fault injected for real, and what is left when they have ended."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from gpu_plan.executor.checkpoints.find import newest_complete
from gpu_plan.executor.job import Job
from gpu_plan.executor.names import RUN_ID, attempt_folder
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.executor.supervise.limits import Limits
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.planner.plan.files import save
from tests.support.fault_job import ENVIRONMENT, SCRIPT, saved_plan

QUICK = Limits(hang=180.0, hang_first=400.0, end=6.0, peers=6.0, stacks=1.0)
"""Shorter waits than a user's, where waiting only costs time."""
IMPATIENT = Limits(hang=12.0, hang_first=400.0, end=6.0, peers=6.0, stacks=1.0, hang_busy=4.0)
"""For runs that do hang: on a busy machine others might seem to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over."""

    record: RunRecord
    folder: RunFolder
    orphans: tuple[int, ...]
    """Processes of the run that were left."""

    @property
    def causes(self) -> list[str | None]:
        return [attempt.cause for attempt in self.record.attempts]

    def steps_lost(self) -> int:
        """Steps that the ended attempt had done and the next one did again."""
        first, second = self.record.attempts[-2:]
        return max(self.steps_of(first.number), default=0) - (second.first_step - 1)

    def steps_of(self, number: int) -> list[int]:
        """Numbers of the last steps in the ranks' records of an attempt."""
        latest = number == len(self.record.attempts)
        where = self.folder.path if latest else self.folder.path / attempt_folder(number)
        ranks = RunFolder(where).ranks()
        return [rank.steps[-1].step for rank in ranks if rank.steps]


def run(job: Job, limits: Limits = QUICK, inject: Callable[[RunFolder], None] | None = None) -> Ended:
    """Supervises the job here; `inject` works beside it in a thread, and is given the run folder."""
    from gpu_plan.executor.run_folder import create

    folder = create(job.working_directory)
    thread = threading.Thread(target=inject, args=(folder,), daemon=True) if inject else None
    if thread is not None:
        thread.start()
    record = supervise(job, folder=folder, limits=limits)
    if thread is not None:
        thread.join(10)
    return Ended(record=record, folder=folder, orphans=tuple(alive(folder.run_id)))


def alive(run_id: str) -> list[int]:
    """Pids of a run's processes, found without the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID) == run_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def marked(mark: str) -> list[int]:
    """Pids of what a lean script left behind, by its arguments: whatever its environment, session and parents."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[-1:] == [f"86400.{mark}"] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float = 1500.0) -> bool:
    """Whether `condition()` came true within `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False


def steps_done(folder: RunFolder) -> int:
    """The last step in any record of the running attempt."""
    return max((rank.steps[-1].step for rank in folder.ranks() if rank.steps), default=0)


def kill_a_rank(seed: int, steps: int) -> Callable[[RunFolder], None]:
    """Sends SIGKILL to one of the ranks, chosen at random, at a random moment between their start and `steps` steps."""
    chance = random.Random(seed)

    def inject(folder: RunFolder) -> None:
        after = chance.randrange(steps)
        wait_until(lambda: len(list(folder.path.glob("rank-*.json"))) == 2 and steps_done(folder) >= after)
        time.sleep(chance.uniform(0.0, 1.0))
        pids = [rank.pid for rank in folder.ranks()]
        with contextlib.suppress(ProcessLookupError, IndexError):  # the shot came when the ranks had ended
            os.kill(chance.choice(pids), signal.SIGKILL)

    return inject


def signal_launcher(number: signal.Signals) -> Callable[[RunFolder], None]:
    """Sends a signal to the launcher once both ranks have done a step."""

    def inject(folder: RunFolder) -> None:
        wait_until(lambda: steps_done(folder) >= 2 and _launchers(folder))
        for pid in _launchers(folder):
            os.kill(pid, number)

    return inject


def _launchers(folder: RunFolder) -> set[int]:
    """Parents of the ranks that wrote the records; none while a record is that of an attempt that is over."""
    running = alive(folder.run_id)
    try:
        parents = {psutil.Process(rank.pid).ppid() for rank in folder.ranks()}
    except psutil.Error:
        return set()
    return parents if parents <= set(running) else set()


def newest_step(folder: RunFolder) -> int:
    """The step of the newest complete checkpoint of a run; 0 for none."""
    found = newest_complete([folder.path], run_id=folder.run_id)
    return found.manifest.step if found else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """`plan --execute` as a process of its own, at work."""

    process: "subprocess.Popen[str]"
    folder: RunFolder

    def end(self, *numbers: signal.Signals) -> int:
        """Sends it the signals and waits until no process of the run is left; its return code."""
        for number in numbers:
            self.process.send_signal(number)
        self.process.wait(1500)
        assert wait_until(lambda: not alive(self.folder.run_id))
        return self.process.returncode


def command_line(
    folder: Path,
    *arguments: str,
    restarts: int = 0,
    script: Path = SCRIPT,
    ready: Callable[[RunFolder], object] = lambda run: steps_done(run) >= 2,
    environment: Mapping[str, str] | None = None,
) -> CommandLine:
    """Starts `plan --plan ... --execute` on the script and waits until it is `ready`: its ranks have done two steps."""
    plan = folder / "plan.json"
    save(saved_plan(), plan, force=True)
    process = subprocess.Popen(
        (sys.executable, "-m", "gpu_plan", "--plan", str(plan), "--max-restarts", str(restarts),
         "--execute", str(script), "--", *arguments),
        cwd=folder, env={**os.environ, **ENVIRONMENT, **(environment or {})}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: process.poll() is not None or any(ready(run) for run in list_runs(folder)))
    if process.poll() is not None or not list_runs(folder):
        process.kill()
        raise AssertionError(f"it did not start: {process.communicate()}")
    return CommandLine(process=process, folder=list_runs(folder)[-1])
