"""Tells what an attempt does until its first step, and for how long already: phases, and hosts that have not come."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpu_plan.executor.records.run import Phase
from gpu_plan.executor.supervise.follow.hosts import Meeting
from gpu_plan.executor.supervise.follow.phases import LAUNCHER, STEPS, phases, present
from gpu_plan.executor.supervise.follow.pulse import Pulse

HOSTS_AGAIN, PHASE_AGAIN = 15.0, 30.0
"""Seconds after which the same is said again."""


@dataclass(slots=True, kw_only=True)
class Beginning:
    """Of one attempt. Times are the supervisor's own monotonic clock, in seconds."""

    began: float
    """Seconds since the epoch, as the ranks count."""
    expected: int
    """Ranks on this host."""
    meeting: Meeting | None
    """Where the hosts of this run meet; None on one."""
    tell_phase: Callable[[str, tuple[Phase, ...]], None]
    note: Callable[[str], None]
    _phase: str = LAUNCHER
    _said: float | None = None
    _hosts_since: float | None = None
    _hosts_said: float = field(default=float("-inf"))

    def look(self, pulses: tuple[Pulse, ...], now: float, processes: Callable[[], Iterable[int]]) -> bool:
        """Says what has changed, and from time to time what has not; whether other hosts are waited for.

        `processes`: those of the run on this host.
        """
        waits = self.meeting is not None and not pulses
        if self.meeting is not None and waits and now - self._hosts_said >= HOSTS_AGAIN:
            self._hosts_since = now if self._hosts_since is None else self._hosts_since
            waited = f" (for {now - self._hosts_since:.0f} s)" if now > self._hosts_since else ""
            self.note(self.meeting.words(self.meeting.joined(processes())) + waited)
            self._hosts_said = now
        if self._phase != STEPS and not waits:
            self._tell(present(pulses, self.expected), pulses, now)
        return waits

    def _tell(self, at: str, pulses: tuple[Pulse, ...], now: float) -> None:
        self._said = now if self._said is None else self._said
        if at == self._phase and now - self._said < PHASE_AGAIN:
            return
        self._phase, self._said = at, now
        self.tell_phase(at, phases(self.began, pulses, self.expected))
