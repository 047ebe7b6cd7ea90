"""The rules: total and stable, whatever the order in which plans were found."""

from collections.abc import Sequence
from typing import Any, TypeVar

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.ratio import ratio
from gpu_plan.planner.workload.prefer import Prefer

LONGER = 1.05
"""How many times as long as the fastest a plan may be expected to take and still be a tie."""
OFFLOADED = 2
"""How many times over the time of a plan that offloads counts beside one that does not.

Every recipe keeps to what the devices hold as long as that fits: axolotl's guide takes "the least offload that fits",
ml-engineering's table offloads where nothing else is left. Half the time is what a second machine would give; below
that, RAM of the node, DeepSpeed's own arithmetic and the transfers are not worth it.
"""
SLOWEST = 2
"""How many times as long as the fastest a plan may be expected to take and still be preferred for its memory or its few
parts: as for `OFFLOADED`, half the speed is what a second machine would give."""
_TENTHS = 10

R = TypeVar("R", bound=Judgement)


ORDERS: dict[Prefer, tuple[str, ...]] = {
    Prefer.BALANCE: ("host", "cramped", "parts", "headroom", "time"),
    Prefer.SPEED: ("time", "host", "parts", "headroom"),
    Prefer.MEMORY: ("headroom", "host", "parts", "time"),
    Prefer.COST: ("time", "host", "parts", "headroom"),
    Prefer.SIMPLE: ("parts", "host", "headroom", "time"),
}
"""What is compared, first to last. On one cluster an hour costs the same whatever runs: the cheapest is the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How plans of one cluster are compared."""

    prefer: Prefer = Prefer.BALANCE
    host_ram_bytes: int = 0
    """Of a node: known, or what the smallest usual one has; 0 where devices have no host beside them."""

    @property
    def order(self) -> tuple[str, ...]:
        """What is compared, first to last."""
        return ORDERS[self.prefer]

    def ordered(self, plans: Sequence[R]) -> list[R]:
        """Best first: what surely fits, then what may, then what needs something that is not known to be there.

        Within each: the best of those that tie with the fastest, and so on with what is left. Where memory or
        simplicity is preferred all plans are compared that take at most `SLOWEST` times as long, not ties alone.
        """
        found: list[R] = []
        for group in sorted({standing(plan) for plan in plans}):
            left = sorted((plan for plan in plans if standing(plan) == group), key=_name)
            while left:
                best = min(self.tied(left), key=self.key)
                found.append(best)
                left = [plan for plan in left if plan is not best]
        return found

    @property
    def compares_times(self) -> bool:
        """Whether the fastest and what ties with it go first; else memory or simplicity, within `SLOWEST`."""
        return self.prefer not in (Prefer.MEMORY, Prefer.SIMPLE)

    def tied(self, plans: Sequence[R]) -> list[R]:
        """Those among which the order decides."""
        fastest = self.fastest(plans)
        return [plan for plan in plans if self.ties(plan, fastest)]

    def fastest(self, plans: Sequence[R]) -> R:
        """The one that takes the least time, as times count here."""
        return min(plans, key=lambda plan: (self.expected(plan), self.key(plan)))

    def ties(self, plan: Judgement, fastest: Judgement) -> bool:
        """Whether a plan's time cannot be told from the fastest's, and is expected to be next to the same; where memory
        or simplicity is preferred, whether it takes no more than `SLOWEST` times as long."""
        longest = LONGER if self.compares_times else SLOWEST
        if self.expected(plan) / self.expected(fastest) > longest:
            return False  # whatever the rates are: what it takes at their ends is not asked
        return not self.compares_times or ratio(self.counted(plan), self.counted(fastest)).low <= 1

    def beyond(self, plans: Sequence[R], *, seconds: float, parts: int) -> bool:
        """Whether what takes at least so many seconds a sample, and so many moving parts, cannot come first.

        Of two that tie RAM of the node, a tenth of the device and moving parts decide: one that keeps none and is no
        faster loses to what has none, leaves that tenth and has fewer parts.
        """
        fitting = sorted((plan for plan in plans if standing(plan) == 0), key=_name)
        if not fitting:
            return False
        fastest = self.expected(self.fastest(fitting))
        if not self.compares_times:
            limit = SLOWEST * min(seconds, fastest)
            simpler = self.prefer is Prefer.SIMPLE and any(
                plan.moving_parts < parts and self.expected(plan) <= limit for plan in fitting
            )
            return simpler or seconds > SLOWEST * fastest
        if seconds > LONGER * fastest or (seconds >= fastest and self.order[0] == "time"):
            return True
        first = min(self.tied(fitting), key=self.key)
        held = (self.host_tenths(first), is_cramped(first), first.moving_parts)
        return seconds >= fastest and held < (0, False, parts)

    def counted(self, plan: Judgement) -> tuple[float, ...]:
        """A plan's seconds as they are compared, unless time alone matters: of an engine that computes in fewer bits
        than whole copies do without what that spares, which is not the spreading's doing; of a plan that offloads
        `OFFLOADED` times, of one with settings or steps that nobody asked for `LONGER` times, of one that shares out
        what every device could hold whole as well: engines' own settings and whole copies are what is used and measured
        most, and what leaves them has to gain more than a tie."""
        if self.prefer is not Prefer.BALANCE:
            return plan.seconds
        times = self._times(plan)
        return tuple(times * seconds for seconds in plan.compared_seconds)

    def expected(self, plan: Judgement) -> float:
        """The first of `counted`, without the others."""
        if self.prefer is not Prefer.BALANCE:
            return plan.expected_seconds
        return self._times(plan) * plan.compared_expected_seconds

    @staticmethod
    def _times(plan: Judgement) -> float:
        return (OFFLOADED if plan.offloads else 1) * LONGER ** ((plan.tuned or plan.accumulates) + plan.needless)

    def bound(self, seconds: float, compared: float, *, needless: bool) -> float:
        """The least of `counted`, from the least of a plan's seconds and of those that are compared."""
        if self.prefer is not Prefer.BALANCE:
            return seconds
        return compared * LONGER**needless

    def key(self, plan: Judgement) -> tuple[Any, ...]:
        """What is compared, smaller first; a plan's name last, so that no two are equal by chance of their order."""
        return (*(self.measure(name, plan) for name in self.order), _name(plan))

    def measure(self, name: str, plan: Judgement) -> float:
        """One of the things that are compared; less is better."""
        if name == "host":
            return self.host_tenths(plan)
        if name == "cramped":
            return is_cramped(plan)
        if name == "parts":
            further = (0.5 if plan.tuned else 0) + (0.25 if plan.staged else 0) + (0.25 if plan.accumulates else 0)
            return plan.moving_parts + further
        if name == "headroom":
            return -(_TENTHS * plan.room_bytes // max(1, plan.capacity_bytes))
        return plan.expected_seconds

    def host_tenths(self, plan: Judgement) -> int:
        """Tenths of a node's RAM that a plan keeps taken."""
        return _TENTHS * plan.kept_host_bytes // self.host_ram_bytes if self.host_ram_bytes else 0


def is_cramped(plan: Judgement) -> bool:
    """Whether it leaves less than a tenth of the device free: what is expected is not what every batch takes."""
    return _TENTHS * plan.room_bytes < plan.capacity_bytes


def standing(plan: Judgement) -> int:
    """0 fits; 1 may not fit the device; 2 needs something that is not known to be there."""
    return 0 if plan.verdict == "fits" else 2 if plan.conditions else 1


def _name(plan: Judgement) -> tuple[Any, ...]:
    return plan.identity
