"""Runs a job to its end through as many attempts as it takes and is allowed (I/O)."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.find import newest_complete
from gpu_plan.executor.inference.loading.room import clear_offload
from gpu_plan.executor.job import Job
from gpu_plan.executor.records.run import Attempt, Phase, RunRecord, RunStatus
from gpu_plan.executor.run_folder import RunFolder, create
from gpu_plan.executor.supervise.attempt import Outcome, new_attempt, prepare_attempt, run_attempt
from gpu_plan.executor.supervise.causes.classify import interrupted_code
from gpu_plan.executor.supervise.causes.losses import first_not_finite
from gpu_plan.executor.supervise.decide import decide
from gpu_plan.executor.supervise.events import Event, EventKind
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.executor.supervise.interrupts import Interrupts, interrupts
from gpu_plan.executor.supervise.ladder.replan import replan
from gpu_plan.executor.supervise.ledger import Ledger, new_record, taken_up
from gpu_plan.executor.supervise.limits import Limits, read_limits
from gpu_plan.executor.supervise.machine import describe_machine
from gpu_plan.executor.supervise.processes.kernel import adopt_orphans
from gpu_plan.executor.supervise.resumption import (
    Resumption,
    checkpoint_roots,
    find_resumption,
    keeps_progress,
    lacks_room,
    start_from_given,
)
from gpu_plan.executor.supervise.watch import Listener
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.files import write_text
from gpu_plan.planner.plan.saved import SavedPlan

Observe = Callable[[Event], None]
_STATUS: dict[str, RunStatus] = {
    "success": "succeeded",
    "interrupted": "interrupted",
    "launcher": "launcher_failed",
}


def supervise(
    job: Job,
    *,
    folder: RunFolder | None = None,
    observe: Observe | None = None,
    limits: Limits | None = None,
    phases: tuple[Phase, ...] = (),
    continued: RunRecord | None = None,
) -> RunRecord:
    """Executes the job and gives the record of the run, whose `exit_code` is what `plan --execute` ends with.

    `phases`: what passed before, for the record. `continued`: what run.json says of a run that an engine starts again:
    it goes on with its next attempt, from its newest whole checkpoint. Makes the run folder where none is given.
    Whatever happens, no process of the run is left when this returns; a supervisor that is killed takes the run with
    it. Raises a PlanError, before anything is launched, for what cannot be prepared (the run folder then says so too).
    """
    bounds = limits or read_limits(os.environ)
    place = folder if folder is not None else create(job.working_directory)
    record = new_record(job, place.run_id) if continued is None else taken_up(continued)
    ledger = Ledger(place, replace(record, phases=(*record.phases, *phases)))
    with interrupts(placed=job.placement is not None) as noted:
        adopt_orphans()
        try:
            run = _Run(job=job, ledger=ledger, noted=noted, observe=observe, limits=bounds)
            return run.to_the_end()
        except BaseException as error:
            ledger.end("failed", _code_of(error), f"{type(error).__name__}: {error}")
            raise
        finally:
            adopt_orphans(False)


def _code_of(error: BaseException) -> int:
    return int(error.exit_code) if isinstance(error, PlanError) else 1


@dataclass(slots=True, kw_only=True)
class _Run:
    job: Job
    ledger: Ledger
    noted: Interrupts
    observe: Observe | None
    limits: Limits
    _changes: tuple[str, ...] = ()
    _roots: set[Path] = field(default_factory=set)
    _blind: str = ""
    """Why nobody is shown anything any more."""

    def to_the_end(self) -> RunRecord:
        self._tell("run")
        resumed = self._take_up()
        while True:
            outcome = self._attempt(resumed)
            self._roots |= checkpoint_roots(outcome.ranks, self.job.working_directory)
            decision = decide(
                self.ledger.record.attempts,
                outcome.verdict.exit_code,
                self.job.max_restarts,
                ranks_ran=bool(outcome.ranks),
                error_type=outcome.error_type,
                hosts=len(self.job.hosts),
                no_room=self._lacks_room(outcome),
            )
            if decision.action == "stop" or self._interrupted():
                return self._end(outcome, decision.reason)
            self._changes = (decision.reason,) if decision.reason else ()
            if decision.action == "replan" and not self._replan(outcome) and not self._interrupted():
                return self._end(outcome, "; ".join(self._changes))
            self._put_away(outcome.attempt)
            resumed = find_resumption(self.job, self._folder, self._roots)
            if signal_name := self._interrupted():
                return self._end_between(signal_name)

    def _take_up(self) -> Resumption:
        """Where the first attempt of this supervisor begins: from nothing, unless there were others before."""
        before = self.ledger.record.attempts
        if not before:
            return Resumption()
        folders = [self._folder.path, *(self._folder.path / names.attempt_folder(one.number) for one in before)]
        for folder in folders:
            self._roots |= checkpoint_roots(RunFolder(folder).ranks(), self.job.working_directory)
        self._changes = (before[-1].explanation,)
        self._put_away(before[-1])
        return find_resumption(self.job, self._folder, self._roots)

    def _lacks_room(self, outcome: Outcome) -> str:
        full = outcome.attempt.cause == "disk_full"
        return lacks_room(outcome.full_disk, self._folder, self._roots) if full else ""

    def _put_away(self, attempt: Attempt) -> None:
        """Moves what the attempt left into its own folder; what was said about its logs names their new place."""
        now = self._folder.close_attempt(attempt.number) / names.LOGS_FOLDER
        self.ledger.update(replace(attempt, explanation=attempt.explanation.replace(str(self._folder.logs), str(now))))

    def _interrupted(self) -> str | None:
        return self.noted.first

    def _end_between(self, signal_name: str) -> RunRecord:
        message = f"interrupted by {signal_name} between two attempts"
        record = self.ledger.end("interrupted", interrupted_code(signal_name), message)
        self._tell("end")
        return record

    def _replan(self, outcome: Outcome) -> bool:
        """Whether there is a next plan; what changes, or why there is none, is kept."""
        self._note("out of memory: looking for the next plan with the same effective batch")
        found = replan(
            self.job,
            outcome.ranks,
            self._folder.path,
            data_limits=outcome.data_limits,
            keeps=keeps_progress(self.job, self._folder, self._roots),
            stop=self._interrupted,
        )
        self._changes = found.changes
        if found.job is not None:
            self.job = found.job
        return found.job is not None

    @property
    def _folder(self) -> RunFolder:
        return self.ledger.folder

    def _attempt(self, resumed: Resumption) -> Outcome:
        number = len(self.ledger.record.attempts) + 1
        job, begins = (self.job, resumed) if resumed.path else start_from_given(self.job, self._folder)
        files = prepare_attempt(job, number, self._folder, resumed.path)
        write_text(
            self._folder.path / names.ENVIRONMENT_FILE, dump(describe_machine(files.environment)) + "\n", force=True
        )
        for line in files.notes:
            self._tell("note", text=line)
        for line in files.not_applied:
            self._tell("note", text=f"not applied: {line}")
        attempt = new_attempt(
            self.job,
            number,
            files,
            resume_from=begins.path,
            first_step=begins.step + 1,
            changes=(*self._changes, *resumed.notes, *(begins.notes if begins is not resumed else ())),
        )
        self.ledger.begin(attempt)
        self._tell("launch", command=files.command, plan=self.job.saved)
        outcome = run_attempt(
            self.job,
            attempt,
            files,
            folder=self._folder,
            limits=self.limits,
            interrupts=self.noted,
            listener=Listener(output=self._output, pulse=self._pulse, note=self._note, phase=self._phase),
        )
        clear_offload(self._folder.path, self.job.arguments, self.job.working_directory)
        if outcome.strays:
            self._note(f"{outcome.strays} processes that the job left behind were killed")
        self.ledger.update(outcome.attempt)
        self._tell("attempt", attempt=outcome.attempt)
        return outcome

    def _end(self, outcome: Outcome, reason: str) -> RunRecord:
        verdict = outcome.verdict
        good = self._last_good(outcome) if verdict.cause == "nan" else ""
        message = "; ".join(filter(None, (verdict.explanation, reason, good, self._blind)))
        status = _STATUS.get(verdict.cause, "failed")
        if status == "succeeded" and any(attempt.deviations for attempt in self.ledger.record.attempts[-1:]):
            status = "succeeded_not_as_planned"
        record = self.ledger.end(status, verdict.exit_code, message)
        if self.ledger.problem:
            self._note(f"the record of this run is incomplete: {self.ledger.problem}")
        self._tell("end")
        return record

    def _last_good(self, outcome: Outcome) -> str:
        """The newest checkpoint from before the loss was no number; it is left where it lies."""
        first = first_not_finite(outcome.ranks)
        roots = self._roots | checkpoint_roots(outcome.ranks, self.job.working_directory)
        found = newest_complete((self._folder.path, *roots), run_id=self._folder.run_id, before=first)
        if found is None:
            return "no checkpoint was saved before that"
        return f"the last good checkpoint is {found.path}, of step {found.manifest.step}"

    def _output(self, error: bool, text: str) -> None:
        self._tell("output", text=text, error_stream=error)

    def _pulse(self, pulses: tuple[Pulse, ...]) -> None:
        self._tell("pulse", pulses=pulses)

    def _phase(self, name: str, behind: tuple[Phase, ...]) -> None:
        self.ledger.update(replace(self.ledger.record.attempts[-1], phases=behind))
        self._tell("phase", phase=name, phases=behind)

    def _note(self, text: str) -> None:
        self._tell("note", text=text)

    def _tell(
        self,
        kind: EventKind,
        *,
        text: str = "",
        command: tuple[str, ...] = (),
        error_stream: bool = False,
        pulses: tuple[Pulse, ...] = (),
        attempt: Attempt | None = None,
        phase: str = "",
        phases: tuple[Phase, ...] = (),
        plan: SavedPlan | None = None,
    ) -> None:
        if self.observe is None:
            return
        event = Event(
            kind=kind,
            record=self.ledger.record,
            text=text,
            command=command,
            error_stream=error_stream,
            pulses=pulses,
            attempt=attempt,
            phase=phase,
            phases=phases,
            plan=plan,
        )
        try:
            self.observe(event)
        except Exception as error:  # a closed pipe or a broken view is no reason to end a training
            self.observe, self._blind = None, f"nothing was shown after {type(error).__name__}: {error}"
