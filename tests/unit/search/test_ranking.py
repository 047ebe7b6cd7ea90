"""Which plan goes first: rules that are total, stable, and not moved by plans that are worse in every way."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.profile import PeakDetails, known
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.search.front import beats, completed, front
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.ratio import OFF, ratio
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.ranking.words import rules, why
from gpu_plan.planner.search.ranking.words import unsure as may_do_without
from gpu_plan.planner.trace.events import CATEGORIES
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.prefer import Prefer


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Judgement):
    """A plan that is what it is said to be; one of 100 parts and more offloads, as in a search."""

    name: str = "plan"
    times: tuple[float, ...] = (1.0,)
    parts: int = 0
    bounded: bool = False
    own_settings: bool = False
    even: tuple[float, ...] = ()
    shares: bool = False

    @property
    def compared_seconds(self) -> tuple[float, ...]:
        return self.even or self.times

    @property
    def needless(self) -> bool:
        return self.shares

    @property
    def tuned(self) -> bool:
        return self.own_settings

    @property
    def title(self) -> str:
        return self.name

    @property
    def seconds(self) -> tuple[float, ...]:
        return self.times

    @property
    def samples_per_second(self) -> float:
        return 1 / self.times[0]

    @property
    def moving_parts(self) -> int:
        return self.parts

    @property
    def offloads(self) -> bool:
        return self.parts >= 100


def judged(name: str, times: tuple[float, ...], *, used: int = 8, host: int = 0, **more: Any) -> Judged:
    """A plan that takes so many GiB of a device of 16 and of the node."""
    details = PeakDetails(
        phase_of_peak=Phase.BACKWARD, at_peak=dict.fromkeys(CATEGORIES, 0), at_rest_bytes=0, phase_peaks={}
    )
    profile = known(used * GIB, details)
    return Judged(
        name=name, times=times, profile=profile, terms=(), host_bytes=host * GIB, capacity_bytes=16 * GIB, **more
    )


RANKING = Ranking(host_ram_bytes=64 * GIB)


def test_what_two_plans_share_cancels() -> None:
    """Both take two to ten seconds; whatever the rates are, the second takes a tenth longer."""
    slow_or_fast = (4.0, 10.0, 2.0)
    found = ratio(tuple(1.1 * time for time in slow_or_fast), slow_or_fast)
    assert (found.low * OFF, found.high / OFF) == pytest.approx((1.1, 1.1))
    assert ratio((2.0, 1.0, 3.0), (1.0,)).low == 2.0 / OFF, "what is not known apart stands at its expected time"


def test_offloading_that_is_hardly_faster_goes_behind_the_plain_plan() -> None:
    offloaded = judged("offloaded", (1.0, 1.6, 0.9), used=15, host=17, parts=105)
    plain = judged("plain", (1.035, 1.4, 0.95), used=13)
    found = RANKING.ordered([offloaded, plain])
    assert [plan.name for plan in found] == ["plain", "offloaded"]
    sentence = why(RANKING, found)
    assert sentence is not None
    assert sentence.startswith("plain is first: offloaded takes 0.97 times as long")
    assert "keeps 17.0 GiB in the node's RAM" in sentence


def test_fewer_bits_are_not_the_gain_of_sharing_out() -> None:
    """FSDP2 computes in 16 bits what DDP's autocast keeps in fp32: without that they are next to equal."""
    sharded = judged("sharded", (0.8, 0.9, 0.7), parts=2, even=(0.97, 1.1, 0.85), shares=True)
    whole = judged("whole", (1.0, 1.15, 0.88), parts=1)
    found = RANKING.ordered([sharded, whole])
    assert [plan.name for plan in found] == ["whole", "sharded"]
    assert why(RANKING, found) == (
        "whole is first: sharded takes 0.80 times as long (0.70 to 0.90), because it computes in 16 bits what whole"
        " copies keep in fp32: 0.97 times as long (0.85 to 1.09) without that, and sharing out what every device holds"
        " whole has to gain more than 5%"
    )
    better = replace(sharded, even=(0.9, 1.0, 0.8))
    assert RANKING.ordered([better, whole])[0] is better, "what is left of the gain is the spreading's"
    assert replace(RANKING, prefer=Prefer.SPEED).ordered([sharded, whole])[0] is sharded
    assert RANKING.bound(0.8, 0.97, needless=True) == pytest.approx(RANKING.counted(sharded)[0])


def test_what_is_next_to_equal_is_told_with_the_digits_that_tell_it_apart() -> None:
    found = why(RANKING, [judged("one", (1.0, 1.0, 1.0)), judged("other", (1.002, 1.002, 1.002))])
    assert found == "one is first: other takes 1.002 times as long (0.895 to 1.122)"


def test_offloading_goes_first_only_where_it_halves_the_time() -> None:
    """Whatever makes it faster: an engine that computes in 16 bits throughout, or a batch that is larger."""
    offloaded = judged("offloaded", (1.0, 1.1, 0.9), host=3, parts=105)
    plain = judged("plain", (1.4, 1.5, 1.3))
    slow = judged("slow", (2.4, 2.6, 2.2))
    assert [plan.name for plan in RANKING.ordered([offloaded, plain])] == ["plain", "offloaded"]
    assert [plan.name for plan in RANKING.ordered([offloaded, slow])] == ["offloaded", "slow"]
    assert replace(RANKING, prefer=Prefer.SPEED).ordered([offloaded, plain])[0] is offloaded
    assert why(RANKING, [plain, offloaded]) == (
        "plain is first: offloaded takes 0.71 times as long (0.62 to 0.82), but keeps 3.0 GiB in the node's RAM, which"
        " goes first only where it halves the time"
    )


def test_a_few_percent_cannot_be_told_whatever_the_rates() -> None:
    fast = judged("fast", (1.0, 1.5, 0.8), parts=2)
    slow = judged("slow", (1.04, 1.56, 0.83))
    assert RANKING.ties(slow, fast), "ratios of published times are told no closer"
    assert RANKING.ordered([slow, fast])[0] is slow
    far = judged("far", (1.06, 1.4, 0.7))
    assert not RANKING.ties(far, fast), "more than a twentieth longer in expectation"


def test_what_may_not_fit_is_told_where_what_fits_offloads_and_is_much_slower() -> None:
    offloaded, other = judged("offloaded", (2.0,), host=3, parts=105), judged("other", (2.4,), host=3, parts=106)
    needs = Term(name="context", low=GIB // 2, expected=GIB // 2, high=3 * GIB, basis="measured", source="a test")
    unsure = replace(judged("unsure", (1.0,), used=15), terms=(needs,))
    assert unsure.verdict == "tight"
    found = RANKING.ordered([unsure, other, offloaded])
    assert [plan.name for plan in found] == ["offloaded", "other", "unsure"]
    sentence = why(RANKING, found)
    assert sentence is not None
    assert sentence.endswith(
        "unsure takes 0.50 times as long (0.45 to 0.56) without the node's RAM, but may not fit the device"
    )
    worth = may_do_without(found)
    assert worth is not None
    assert worth[0] is unsure, "the first line of the report names it"
    hardly = [offloaded, other, replace(unsure, times=(1.9,))]
    assert "unsure" not in (why(RANKING, hardly) or "")
    assert may_do_without(hardly) is None
    assert may_do_without([other, judged("offloads too", (1.0,), parts=105)]) is None


def test_what_may_not_fit_is_told_where_it_is_much_faster_though_nothing_offloads() -> None:
    first, second = judged("first", (2.0,)), judged("second", (2.4,))
    needs = Term(name="context", low=GIB // 2, expected=GIB // 2, high=3 * GIB, basis="measured", source="a test")
    tight = replace(judged("tight", (1.0,), used=15), terms=(needs,))
    sentence = why(RANKING, [first, second, tight])
    assert sentence is not None
    assert sentence.endswith("; tight takes 0.50 times as long (0.45 to 0.56), but may not fit the device")
    assert may_do_without([first, second, tight]) is None, "the first line is for what keeps the node's RAM"
    assert "tight" not in str(why(RANKING, [first, second, replace(tight, times=(1.9,))]))


def test_what_needs_ram_that_is_not_known_goes_last_and_says_so() -> None:
    needy = judged("needy", (1.0,), host=180, usual_host_bytes=64 * GIB)
    slow = judged("slow", (9.0,))
    assert needy.verdict == "tight"
    assert needy.device_verdict == "fits"
    assert [one.bytes for one in needy.conditions] == [180 * GIB]
    found = RANKING.ordered([needy, slow])
    assert found[0] is slow
    assert why(RANKING, found) == (
        "slow is first: needy needs 180 GiB of node RAM, which is not known (--host-ram settles it)"
    )
    settled = replace(needy, usual_host_bytes=None)
    assert settled.verdict == "fits"


@pytest.mark.parametrize(
    ("prefer", "first"),
    [
        (Prefer.BALANCE, "simple"),
        (Prefer.SPEED, "fast"),
        (Prefer.COST, "fast"),
        (Prefer.MEMORY, "small"),
        (Prefer.SIMPLE, "simple"),
    ],
)
def test_a_preference_changes_the_order_of_the_rules(prefer: Prefer, first: str) -> None:
    plans = [
        judged("fast", (1.0, 2.0, 0.9), used=15, parts=5),
        judged("simple", (1.02, 1.9, 0.95), used=12),
        judged("small", (1.9, 2.2, 1.7), used=3, parts=5),
        judged("slow", (7.0, 9.0, 6.0), used=2),
    ]
    ranking = replace(RANKING, prefer=prefer)
    assert ranking.ordered(plans)[0].name == first
    assert rules(ranking)


def test_memory_and_simplicity_are_preferred_within_twice_the_fastest_time() -> None:
    """Full offload that leaves most of the device free at a fourteenth of the speed is nobody's choice."""
    fast = judged("fast", (1.0,), used=14, parts=2)
    frugal = judged("frugal", (14.0,), used=3, host=40, parts=105)
    lean = judged("lean", (1.9,), used=9, parts=2)
    for prefer in (Prefer.MEMORY, Prefer.SIMPLE):
        ranking = replace(RANKING, prefer=prefer)
        found = ranking.ordered([frugal, fast, lean])
        assert [plan.name for plan in found] == ["lean", "fast", "frugal"]
        assert "more than 2 times as long as the fastest come after" in " ".join(rules(ranking))
    assert why(replace(RANKING, prefer=Prefer.MEMORY), [fast, frugal]) == (
        "fast is first: frugal takes 14.00 times as long (12.50 to 15.68)"
    )


times = st.tuples(*[st.integers(1, 30).map(lambda tenth: tenth / 10)] * 3)
plans = st.builds(
    lambda times, used, host, parts: (times, used, host, parts),
    times,
    st.integers(1, 15),
    st.integers(0, 60),
    st.integers(0, 105),
)


def _all(values: list[Any]) -> list[Judged]:
    return [
        judged(f"plan {place:02}", times, used=used, host=host, parts=parts)
        for place, (times, used, host, parts) in enumerate(values)
    ]


@given(st.lists(plans, min_size=1, max_size=8), st.permutations(range(8)), st.sampled_from(list(Prefer)))
def test_the_order_does_not_depend_on_the_order_of_the_search(
    values: list[Any], order: list[int], prefer: Prefer
) -> None:
    found = _all(values)
    ranking = replace(RANKING, prefer=prefer)
    shuffled = [found[place] for place in order if place < len(found)]
    assert ranking.ordered(shuffled) == ranking.ordered(found)


@given(
    st.lists(plans, min_size=1, max_size=6),
    st.integers(0, 5),
    st.lists(plans, max_size=4),
    st.sampled_from(list(Prefer)),
)
def test_plans_that_are_worse_in_every_way_do_not_move_the_winner(
    values: list[Any], place: int, worse: list[Any], prefer: Prefer
) -> None:
    found = _all(values)
    ranking = replace(RANKING, prefer=prefer)
    winner = ranking.ordered(found)[0]
    base = found[place % len(found)]
    dominated = [
        judged(
            f"worse {number}",
            tuple(mine + more for mine, more in zip(base.times, added, strict=True)),
            used=min(16, base.profile.peak_allocated_bytes // GIB + used // 8),
            host=base.host_bytes // GIB + host,
            parts=base.parts + parts,
        )
        for number, (added, used, host, parts) in enumerate(worse)
    ]
    assert ranking.ordered([*dominated, *found])[0] is winner


@given(st.lists(plans, min_size=1, max_size=12), st.integers(0, 12))
def test_the_front_is_that_of_all_plans_evaluated(values: list[Any], simulated: int) -> None:
    """Twenty small spaces and more: what is dropped unsimulated is never on the front of brute force."""
    everything = _all(values)
    every = {everything[place].name for place in front(everything)}
    exact, bounds = everything[:simulated], everything[simulated:]
    # A bound takes at most what the simulation finds, and simulating gives the plan itself.
    lower = {plan.name: plan for plan in bounds}
    bounded = [
        replace(plan, profile=replace(plan.profile, peak_allocated_bytes=plan.profile.peak_allocated_bytes // 2))
        for plan in bounds
    ]
    calls: list[str] = []

    def simulate(plan: Judged) -> Judged:
        calls.append(plan.name)
        return lower[plan.name]

    kept = [*exact, *completed(exact, bounded, simulate)]
    assert {kept[place].name for place in front(kept)} == every
    assert len(calls) == len(set(calls))
    assert not any(beats(plan, plan) for plan in kept)


def test_settings_that_nobody_asked_for_have_to_gain_more_than_a_tie() -> None:
    plain = judged("plain", (1.0, 1.1, 0.9))
    tuned = judged("tuned", (0.96, 1.05, 0.87), own_settings=True)
    faster = judged("faster", (0.9, 1.0, 0.8), own_settings=True)
    assert [plan.name for plan in RANKING.ordered([tuned, plain])] == ["plain", "tuned"]
    assert [plan.name for plan in RANKING.ordered([faster, plain])] == ["faster", "plain"]
    assert [plan.name for plan in replace(RANKING, prefer=Prefer.SPEED).ordered([tuned, plain])] == ["tuned", "plain"]
    told = "settings of its engine, or several micro batches a step, that nobody asked for counts 1.05 times"
    assert told in " ".join(rules(RANKING))


def test_of_plans_that_tie_the_one_that_keeps_less_of_the_node_goes_before_the_simpler_one() -> None:
    simpler = judged("simpler", (1.0,), host=17, parts=1)
    frugal = judged("frugal", (1.0,), parts=4)
    assert [plan.name for plan in RANKING.ordered([simpler, frugal])] == ["frugal", "simpler"]
    assert replace(RANKING, prefer=Prefer.SIMPLE).ordered([simpler, frugal])[0] is simpler


def test_of_two_that_tie_one_that_fills_the_device_goes_behind() -> None:
    copies = judged("copies", (1.0,), used=15, parts=1)
    shards = judged("shards", (1.01,), used=10, parts=2)
    assert RANKING.ordered([copies, shards]) == [shards, copies]
    said = why(RANKING, [shards, copies])
    assert said is not None
    assert "leaves 6.0 GiB of the device free against 1.0" in said
    roomy = replace(copies, profile=judged("roomy", (1.0,), used=14).profile)
    assert RANKING.ordered([roomy, shards]) == [roomy, shards], "a tenth is enough: fewer parts decide"


def test_what_takes_the_same_time_takes_as_long() -> None:
    found = why(RANKING, [judged("one", (1.0,), parts=1), judged("other", (1.0,), parts=2)])
    assert found == "one is first: it has fewer moving parts, and other takes as long"
