"""Follows a run at an engine until its end: state, log, pulses, attempts, from the run folder alone (I/O)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_plan.executor.engines.end import settle
from gpu_plan.executor.engines.engine import JobState, Places
from gpu_plan.executor.engines.jobs import LOG_FILE, ended_with
from gpu_plan.executor.names import LOGS_FOLDER, attempt_folder
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import Attempt, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.events import Event, EventKind
from gpu_plan.executor.supervise.follow.logs import Output, tail
from gpu_plan.executor.supervise.follow.phases import LAUNCHER, STEPS, present
from gpu_plan.executor.supervise.follow.pulse import Pulses
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.files import load

Observe = Callable[[Event], None]
POLL = 0.5
"""Seconds between two looks at the folder."""
_SURE = 2
"""So many answers in a row that the job has ended: between the end and a new place in the queue there may be one."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """One run. `wait` may be called again where an interrupt broke it off."""

    folder: RunFolder
    engine: Places
    job: EngineJob
    observe: Observe
    poll: float = POLL
    ask: float | None = None
    """Seconds between two questions to the engine; None: its own."""
    _record: RunRecord = field(init=False)
    _words: str = ""
    _began: int = 0
    """Attempts whose beginning was told."""
    _ended: int = 0
    _pulses: Pulses | None = None
    _output: Output | None = None
    _phase: str = ""
    _over: int = 0

    def wait(self) -> RunRecord:
        """Returns when the engine's job has ended; the record then says how."""
        self._record = self.folder.read_run()
        if not self._words:
            self._tell("run")
        next_ask = 0.0
        state = JobState(where="queued", words="")
        while True:
            if time.monotonic() >= next_ask:
                next_ask = time.monotonic() + (self.engine.ask_seconds if self.ask is None else self.ask)
                state = self._ask()
            self._look()
            if self._over >= _SURE or self._let_go(state):
                break
            time.sleep(self.poll if self._over == 0 else min(self.poll, 0.2))
            if self._over:
                next_ask = 0.0
        self._look()
        began = bool(self._record.attempts)
        self._record = settle(self.folder, state, self.engine.title, self.job.job)
        said = tail(self.folder.engine / LOG_FILE).strip().splitlines()
        if not began and said:
            self._tell("note", text=f"the job said last: {said[-1]}")
        self._tell("end")
        return self._record

    def _ask(self) -> JobState:
        state = self.engine.state(self.job)
        if state.words != self._words:
            self._words = state.words
            self._tell("note", text=f"{self.engine.title} job {self.job.job}: {state.words}")
        self._over = self._over + 1 if state.where == "ended" else 0
        return state

    def _let_go(self, state: JobState) -> bool:
        """Whether the run is over, and its engine, which would start it again, was held back."""
        if state.where == "ended" or ended_with(self._record) in (None, 0):
            return False
        try:
            done = self.engine.let_go(self.job)
        except PlanError as error:
            done = f"the run is over, and {self.engine.title} may start it again: {error}"
        if done:
            self._tell("note", text=done)
        return bool(done)

    def _look(self) -> None:
        try:
            self._record = self.folder.read_run()
        except PlanError:
            return  # a shared folder may be slow to show what was replaced
        attempts = self._record.attempts
        for attempt in attempts:
            if attempt.number > self._began:
                self._begin(attempt)
            if attempt.number == self._began and attempt.number > self._ended:
                self._show(attempt)
                if attempt.ended is not None and (attempt.cause is not None):
                    self._close(attempt)

    def _begin(self, attempt: Attempt) -> None:
        self._began = attempt.number
        self._pulses, self._output, self._phase = Pulses(self.folder.path), Output(self.folder.logs), LAUNCHER
        try:
            plan = load(self.folder.plan)
        except PlanError:
            plan = None
        self._tell("launch", command=attempt.command, plan=plan)

    def _show(self, attempt: Attempt) -> None:
        if self._pulses is None or self._output is None:
            return
        pulses, changed = self._pulses.look()
        for error, text in self._output.more(started=bool(pulses)):
            self._tell("output", text=text, error_stream=error)
        mine = tuple(pulse for pulse in pulses if pulse.updated >= attempt.started)
        phase = present(mine, self._record.world_size)
        if phase != self._phase and attempt.ended is None:
            self._phase = phase
            self._tell("phase", phase=phase, phases=attempt.phases)
        if changed and phase == STEPS:
            self._tell("pulse", pulses=mine)

    def _close(self, attempt: Attempt) -> None:
        """What the log still holds, also where the next attempt has put it away already."""
        self._ended = attempt.number
        moved = self.folder.path / attempt_folder(attempt.number) / LOGS_FOLDER
        if self._output is not None and moved.is_dir():
            self._output.moved(moved)
            for error, text in self._output.more(started=True):
                self._tell("output", text=text, error_stream=error)
        self._tell("attempt", attempt=attempt)

    def _tell(
        self,
        kind: EventKind,
        **more: object,
    ) -> None:
        self.observe(Event(kind=kind, record=self._record, **more))  # type: ignore[arg-type]
