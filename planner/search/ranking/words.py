"""The rules in words, and why the first plan won over the second."""

from collections.abc import Sequence

from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.ratio import Ratio, ratio
from gpu_plan.planner.search.ranking.rules import LONGER, OFFLOADED, Ranking, standing
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.prefer import Prefer

_COMPARED = {
    "host": "less RAM of the node (in tenths of what it has)",
    "parts": "fewer moving parts (single, DDP, FSDP2, HSDP, FSDP1, ZeRO; offloading after them all)",
    "headroom": "more of the device free (in tenths of its capacity)",
    "time": "less time",
}


def rules(ranking: Ranking) -> tuple[str, ...]:
    """The rules, in the order in which they decide."""
    compared = ", then ".join(_COMPARED[name] for name in ranking.order)
    first = (
        "plans that fit come first, then those that may not fit the device, then those that need something that is not"
        " known to be there"
    )
    if ranking.prefer in (Prefer.MEMORY, Prefer.SIMPLE):
        return (first, f"--prefer {ranking.prefer}: {compared}")
    tie = (
        f"a plan ties with the fastest if it is expected to take at most {LONGER - 1:.0%} longer and, at some rates"
        " within the published ranges, takes no longer"
    )
    if ranking.prefer is Prefer.BALANCE:
        host = (
            f"the time of a plan that offloads counts {OFFLOADED} times beside one that does not: the node's RAM is for"
            f" what does not fit without it, or takes less than 1/{OFFLOADED} of the time with it"
        )
        tuned = (
            f"the time of a plan with settings of its engine that nobody asked for counts {LONGER} times: they have to"
            " gain more than a tie"
        )
        return (first, host, tuned, tie, f"among those that tie: {compared}")
    cost = " (an hour of the same machines costs the same)" if ranking.prefer is Prefer.COST else ""
    return (first, f"--prefer {ranking.prefer}: {compared}{cost}")


def why(ranking: Ranking, plans: Sequence[Judgement]) -> str | None:
    """One sentence: why the first won over the second; None where there is no second."""
    if len(plans) < 2:
        return None
    first, second = plans[0], plans[1]
    if standing(first) != standing(second):
        lacks = second.conditions[0].words if second.conditions else "may not fit the device"
        return f"{_called(first, second)} is first: {_called(second, first)} {lacks}"
    times = ratio(second.seconds, first.seconds)
    fastest = ranking.fastest([plan for plan in plans if standing(plan) == standing(first)])
    all_tie = ranking.prefer in (Prefer.MEMORY, Prefer.SIMPLE)
    if not all_tie and not ranking.ties(second, fastest):
        told = f"{_called(first, second)} is first: {_called(second, first)} takes {_longer(times)}"
        if second.offloads and not first.offloads and times.expected < 1:
            kept = format_gib(second.kept_host_bytes)
            return f"{told}, but keeps {kept} GiB in the node's RAM, which goes first only where it halves the time"
        if second.tuned and not first.tuned and times.expected < 1:
            return f"{told}, but with settings that nobody asked for, which have to gain more than {LONGER - 1:.0%}"
        return told
    deciding = next(
        (name for name in ranking.order if ranking.measure(name, first) != ranking.measure(name, second)), "time"
    )
    return f"{_called(first, second)} is first: {_reason(deciding, ranking, first, second, times)}"


def _reason(deciding: str, ranking: Ranking, first: Judgement, second: Judgement, times: Ratio) -> str:
    other = _called(second, first)
    if deciding == "time":
        return f"{other} takes {_longer(times)}"
    beside = f"and {other} takes {_longer(times)}"
    if deciding == "host":
        kept, more = format_gib(first.kept_host_bytes), format_gib(second.kept_host_bytes)
        return f"it keeps {kept} GiB in the node's RAM against {more}, {beside}"
    if deciding == "headroom":
        free, less = format_gib(first.room_bytes), format_gib(second.room_bytes)
        return f"it leaves {free} GiB of the device free against {less}, {beside}"
    return f"it has fewer moving parts, {beside}"


def _longer(times: Ratio) -> str:
    """`1.18 times as long (1.05 to 1.31)`."""
    between = f" ({times.low:.2f} to {times.high:.2f})" if f"{times.low:.2f}" != f"{times.high:.2f}" else ""
    return f"{times.expected:.2f} times as long{between}"


def _called(plan: Judgement, other: Judgement) -> str:
    """A plan's name, with what tells it from the other."""
    return plan.title if plan.title != other.title else plan.full_title
