"""Keeps run.json true: every change is written at once, in one piece (I/O)."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

from gpu_plan.executor.job import Job
from gpu_plan.executor.names import RUN_FILE
from gpu_plan.executor.records.run import Attempt, RunRecord, RunStatus
from gpu_plan.executor.reserve import Reserve
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.errors import PlanError, UnreachableError
from gpu_plan.planner.plan.codec import dump


class Ledger:
    """The run's record and its file."""

    def __init__(self, folder: RunFolder, record: RunRecord, clock: Callable[[], float] = time.time) -> None:
        self.folder, self.record, self._clock = folder, record, clock
        self.problem: str | None = None
        """Why run.json is not as it should be: a full disk or a deleted folder does not end the training."""
        self._reserve = Reserve(folder.path / RUN_FILE)
        try:
            self._reserve.keep()
        except OSError as error:
            raise UnreachableError(
                f"{folder.path} has no room for the records of a run ({error.strerror or error}): make room on its disk"
            ) from None
        folder.write_run(record)

    def begin(self, attempt: Attempt) -> None:
        """Adds an attempt that is about to start."""
        self._set(replace(self.record, status="running", attempts=(*self.record.attempts, attempt)))

    def update(self, attempt: Attempt) -> None:
        """Replaces the latest attempt."""
        self._set(replace(self.record, attempts=(*self.record.attempts[:-1], attempt)))

    def end(self, status: RunStatus, exit_code: int, message: str) -> RunRecord:
        """Closes the run: also on a full disk, since a record that says `running` for ever would be a lie."""
        self._set(replace(self.record, status=status, exit_code=exit_code, message=message, ended=self._clock()))
        if self.problem is not None:
            try:
                self._reserve.spend((dump(self.record) + "\n").encode())
                self.problem = None
            except OSError:
                return self.record
        self._reserve.give_back()
        return self.record

    def _set(self, record: RunRecord) -> None:
        self.record = replace(record, updated=self._clock())
        self._write()

    def _write(self) -> None:
        try:
            self.folder.write_run(self.record)
            self.problem = None
        except PlanError as error:
            self.problem = str(error)


def taken_up(record: RunRecord) -> RunRecord:
    """The record of a run that an engine starts again: its last attempt is over."""
    now = time.time()
    attempts = record.attempts
    if attempts and attempts[-1].ended is None:
        said = "the engine took its nodes back before the attempt could say how it ended"
        last = replace(attempts[-1], ended=record.updated, cause="requeued", explanation=said)
        attempts = (*attempts[:-1], last)
    return replace(
        record, status="preparing", supervisor_pid=os.getpid(), updated=now, ended=None, exit_code=None, message="",
        attempts=attempts,
    )  # fmt: skip


def new_record(job: Job, run_id: str) -> RunRecord:
    """The record of a run that is being prepared."""
    now = time.time()
    return RunRecord(
        run_id=run_id,
        status="preparing",
        script=str(job.script),
        script_arguments=job.arguments,
        working_directory=str(job.working_directory),
        world_size=job.saved.plan.strategy.world_size,
        started=now,
        updated=now,
        supervisor_pid=os.getpid(),
    )
