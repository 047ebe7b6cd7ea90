"""When a run that shows no step has hung: a bound learnt from the run itself; pure."""

from dataclasses import dataclass, field

from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.executor.supervise.limits import Limits


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Follows the ranks of one attempt. Times are the supervisor's own monotonic clock, in seconds."""

    limits: Limits
    began: float
    awaits_hosts: bool = False
    """Whether other hosts have not come yet: this one can do nothing about it."""
    _steps: dict[int, int] = field(default_factory=dict)
    _moved: float | None = None
    _gap: float = 0.0
    _median: float = 0.0
    _any_step: bool = False
    _quiet_since: float | None = None

    def see(self, pulses: tuple[Pulse, ...], now: float) -> None:
        """Takes new pulses in: any change of any rank's record is a sign of life."""
        stepped = False
        for pulse in pulses:
            if pulse.steps > self._steps.get(pulse.rank, 0):
                stepped = True
            self._steps[pulse.rank] = pulse.steps
            self._median = max(self._median, pulse.step_seconds or 0.0)
        if stepped and self._any_step:
            self._gap = max(self._gap, now - (self._moved if self._moved is not None else self.began))
        self._any_step = self._any_step or stepped
        self._moved, self._quiet_since = now, None

    def active(self, now: float) -> None:
        """The ranks computed, read or wrote since the last look."""
        self._quiet_since = None if now < self.began else now

    def excuse(self, seconds: float) -> None:
        """The supervisor itself stood still for so long, stopped or without its turn: nobody was silent meanwhile."""
        self.began += seconds
        self._moved = None if self._moved is None else self._moved + seconds
        self._quiet_since = None if self._quiet_since is None else self._quiet_since + seconds

    @property
    def bound(self) -> float:
        """Seconds without a sign of life, with idle ranks, that are a hang; infinite where the watch is off."""
        limits = self.limits
        if limits.hang <= 0:
            return float("inf")
        if not self._any_step:
            return max(limits.hang_first, limits.hang_hosts) if self.awaits_hosts else limits.hang_first
        return max(limits.hang, limits.hang_steps * self._median, limits.hang_gaps * self._gap)

    def silent(self, now: float) -> float:
        """Seconds since the last sign of life in a record."""
        return now - (self._moved if self._moved is not None else self.began)

    def hung(self, now: float) -> bool:
        """Whether to give up: no step within the bound and nobody busy, or no step within many times the bound."""
        silent, bound = self.silent(now), self.bound
        if silent <= bound:
            return False
        busy_until = self._quiet_since if self._quiet_since is not None else self.began
        return now - busy_until > bound or silent > bound * self.limits.hang_busy
