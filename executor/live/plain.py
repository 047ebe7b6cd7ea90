"""A run in plain lines, for logs and pipes: start, first step, one line every ten seconds, attempts, end (I/O)."""

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from gpu_plan.executor.live.figures import (
    attempt_words,
    end_words,
    first_step_words,
    not_finite_words,
    phase_words,
    progress_words,
    seconds_words,
    slowest,
)
from gpu_plan.executor.supervise.events import Event
from gpu_plan.executor.supervise.follow.phases import LAUNCHER, PRESENT
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from gpu_plan.planner.plan.figures import MemoryFigures

EVERY_SECONDS = 10.0


class PlainView:
    """Notes go to `err`, each on a line that begins with `plan:`; what the script prints goes where it printed it."""

    def __init__(self, out: TextIO, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._err, self._clock = out, err, clock
        self._memory: MemoryFigures | None = None
        self._next = 0.0
        self._first = True
        self._said = self._warned = ""
        self._phase, self._phase_at = LAUNCHER, 0.0

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event.kind:
            case "run":
                self._line(f"run {event.record.run_id}")
            case "launch":
                self._launch(event)
            case "output":
                stream = self._err if event.error_stream else self._out
                stream.write(event.text)
                stream.flush()
            case "pulse":
                self._pulse(event)
            case "note":
                self._line(event.text)
            case "phase":
                self._came_to(event)
            case "attempt":
                self._attempt(event)
            case "end":
                self._line(end_words(event.record))

    def _launch(self, event: Event) -> None:
        self._memory = event.plan.plan.memory if event.plan is not None else None
        self._first, self._next, self._warned = True, 0.0, ""
        self._phase, self._phase_at = LAUNCHER, self._clock()
        attempt = event.record.attempts[-1]
        for change in attempt.changes:
            self._line(change)
        where = f", from {attempt.resumed_from}" if attempt.resumed_from else ""
        self._line(f"attempt {attempt.number}{where}: {shlex.join(event.command)}")

    def _came_to(self, event: Event) -> None:
        now = self._clock()
        if event.phase == self._phase:
            self._line(f"still {PRESENT.get(event.phase, event.phase)}, for {seconds_words(now - self._phase_at)}")
            return
        self._phase, self._phase_at = event.phase, now
        self._line(phase_words(event.phase, event.phases) or first_step_words(event.record, event.phases))

    def _pulse(self, event: Event) -> None:
        behind = slowest(event.pulses)
        if behind is None or behind.last_step is None:
            return
        if not self._warned:
            self._warned = not_finite_words(event.pulses)
            self._line(self._warned)
        now = self._clock()
        if self._first or now >= self._next:
            self._first, self._next = False, now + EVERY_SECONDS
            self._said = progress_words(event.pulses, self._memory)
            self._line(self._said)

    def _attempt(self, event: Event) -> None:
        if event.attempt is None:
            return
        last = progress_words(event.pulses, self._memory)
        if last and last != self._said:
            self._line(last)
        self._line(attempt_words(event.attempt))
        for deviation in event.attempt.deviations:
            self._line(f"deviation: {deviation}")

    def _line(self, text: str) -> None:
        if text:
            print(visible(f"plan: {text}"), file=self._err, flush=True)
