"""The rules in words, and why the first plan won over the second."""

from collections.abc import Sequence

from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.ratio import OFF, Ratio, ratio
from gpu_plan.planner.search.ranking.rules import LONGER, OFFLOADED, SLOWEST, Ranking, standing
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.prefer import Prefer

_COMPARED = {
    "host": "less RAM of the node (in tenths of what it has)",
    "cramped": "a tenth of the device free",
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
    if not ranking.compares_times:
        slowest = f"plans expected to take more than {SLOWEST} times as long as the fastest come after all others"
        return (first, slowest, f"--prefer {ranking.prefer}: {compared}")
    tie = (
        f"a plan ties with the fastest if it is expected to take at most {LONGER - 1:.0%} longer and, at some rates"
        f" within the published ranges and as ratios of times were off by up to {OFF - 1:.0%} in nine of ten published"
        " pairs, takes no longer"
    )
    if ranking.prefer is Prefer.BALANCE:
        host = (
            f"the time of a plan that offloads counts {OFFLOADED} times beside one that does not: the node's RAM is for"
            f" what does not fit without it, or takes less than 1/{OFFLOADED} of the time with it"
        )
        tuned = (
            f"the time of a plan with settings of its engine, or several micro batches a step, that nobody asked for"
            f" counts {LONGER} times: they have to gain more than a tie"
        )
        whole = (
            "what an engine gains by computing in 16 bits what whole copies of the model keep in fp32 under autocast is"
            f" not counted, and the time of a plan that shares out what every device holds whole counts {LONGER} times"
        )
        return (first, host, tuned, whole, tie, f"among those that tie: {compared}")
    cost = " (an hour of the same machines costs the same)" if ranking.prefer is Prefer.COST else ""
    return (first, f"--prefer {ranking.prefer}: {compared}{cost}")


def why(ranking: Ranking, plans: Sequence[Judgement]) -> str | None:
    """One sentence: why the first won over the second, and what would be faster without the node's RAM if it fits; None
    where there is no second."""
    return None if len(plans) < 2 else _over_second(ranking, plans) + _beyond(plans)


def unsure(plans: Sequence[Judgement]) -> tuple[Judgement, Ratio] | None:
    """The fastest of the plans that may not fit and do without the node's RAM, which the first keeps, with how many
    times as long it takes; None where it is hardly faster."""
    return _unsure(plans) if plans[0].offloads else None


def _unsure(plans: Sequence[Judgement]) -> tuple[Judgement, Ratio] | None:
    """The same, whatever the first keeps."""
    first = plans[0]
    known = [plan for plan in plans[1:] if standing(plan) > standing(first) and not plan.offloads]
    if not known:
        return None
    fastest = min(known, key=lambda plan: plan.expected_seconds)
    return (fastest, ratio(fastest.seconds, first.seconds)) if clearly_faster(fastest, first) else None


def clearly_faster(one: Judgement, other: Judgement) -> bool:
    """Whether a plan is so much faster that it is worth a try though it may not fit."""
    return ratio(one.seconds, other.seconds).expected * _CLEARLY <= 1


def _beyond(plans: Sequence[Judgement]) -> str:
    """What would be faster without the node's RAM if it fits."""
    found = _unsure(plans)
    if found is None or found[0] is plans[1]:
        return ""
    fastest, times = found
    without = " without the node's RAM" if plans[0].offloads else ""
    return f"; {fastest.full_title} takes {_longer(times)}{without}, but {lacks(fastest)}"


def lacks(plan: Judgement) -> str:
    """What keeps a plan that may fit from surely fitting."""
    return plan.conditions[0].words if plan.conditions else "may not fit the device"


_CLEARLY = 1.25
"""How many times as fast a plan has to be, to be told of though it may not fit."""


def _over_second(ranking: Ranking, plans: Sequence[Judgement]) -> str:
    first, second = plans[0], plans[1]
    if standing(first) != standing(second):
        return f"{_called(first, second)} is first: {_called(second, first)} {lacks(second)}"
    times = ratio(second.seconds, first.seconds)
    fastest = ranking.fastest([plan for plan in plans if standing(plan) == standing(first)])
    told = f"{_called(first, second)} is first: {_called(second, first)} takes {_longer(times)}"
    if ranking.prefer is Prefer.BALANCE and times.expected < 1:
        counted = _counted(first, second)
        if counted is not None:
            return f"{told}{counted}"
    if not ranking.ties(second, fastest):
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
    if deciding in ("headroom", "cramped"):
        free, less = format_gib(first.room_bytes), format_gib(second.room_bytes)
        return f"it leaves {free} GiB of the device free against {less}, {beside}"
    return f"it has fewer moving parts, {beside}"


def _counted(first: Judgement, second: Judgement) -> str | None:
    """Why what takes less time is second all the same, where its time counts more; None where it does not."""
    if second.offloads and not first.offloads:
        kept = format_gib(second.kept_host_bytes)
        return f", but keeps {kept} GiB in the node's RAM, which goes first only where it halves the time"
    if second.needless and not first.needless:
        return _sharing(first, second)
    if (second.tuned or second.accumulates) and not (first.tuned or first.accumulates):
        what = "settings" if second.tuned else "steps of several micro batches"
        return f", but has {what} that nobody asked for: that time counts {LONGER} times"
    return None


def _sharing(first: Judgement, second: Judgement) -> str:
    """Why what shares out the model is not first though it takes less time."""
    rule = f"sharing out what every device holds whole has to gain more than {LONGER - 1:.0%}"
    if second.compared_seconds == second.seconds:
        return f", but {rule}"
    even = ratio(second.compared_seconds, first.compared_seconds)
    bits = "because it computes in 16 bits what whole copies keep in fp32"
    return f", {bits}: {_longer(even)} without that" + (f", and {rule}" if even.expected < 1 else "")


def _longer(times: Ratio) -> str:
    """`1.18 times as long (1.05 to 1.31)`; of what is next to the same as many digits as tell it apart, if four do."""
    digits = next((few for few in (2, 3, 4) if round(times.expected, few) != 1), None)
    if digits is None:
        return "as long"
    low, expected, high = (f"{value:.{digits}f}" for value in (times.low, times.expected, times.high))
    return f"{expected} times as long" + (f" ({low} to {high})" if low != high else "")


def _called(plan: Judgement, other: Judgement) -> str:
    """A plan's name, with what tells it from the other."""
    return plan.title if plan.title != other.title else plan.full_title
