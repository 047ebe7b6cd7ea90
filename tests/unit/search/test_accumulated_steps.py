"""Which plans are tried with several micro batches to a step: of plans whose seconds are made up."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.finer import accumulated
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.prefer import Prefer
from gpu_plan.planner.workload.training import Checkpointing
from tests.unit.search.test_ranking import Judged, judged

RANKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Judged):
    """A plan of a family, a part of whose time is once a step's."""

    family: Family
    batch: Batch
    once: float = 0.0

    @property
    def time(self) -> Any:
        return SimpleNamespace(step_seconds=1.0, optimizer_seconds=self.once, exposed_communication_seconds=0.0)


def planned(name: str, samples: int, seconds: float, once: float = 0.0, offload: Offload = Offload.NONE) -> Any:
    base = judged(name, (seconds,), parts=100 if offload is not Offload.NONE else 1)
    fields = {key: getattr(base, key) for key in ("name", "times", "parts", "profile", "terms", "host_bytes")}
    family = Family(strategy=STRATEGIES[name], offload=offload, checkpointing=Checkpointing.NONE)
    batch = Batch(micro_batch=samples, accumulation_steps=1)
    return Planned(**fields, capacity_bytes=base.capacity_bytes, family=family, batch=batch, once=once)


def tried(
    *plans: Any, gain: float = 1.5, prefer: Prefer = Prefer.BALANCE, cramped_from: int = 99, **given: int
) -> list[Batch]:
    """Cuts that are tried, where each is so many times as fast as one micro batch a step, and leaves less than a
    tenth of the device from some micro batch on."""
    workload = SimpleNamespace(**{"global_batch": None, "grad_accum": None, "micro_batch": None, **given})
    slowest = min(plan.samples_per_second for plan in plans)

    def judged_at(family: Family, batch: Batch) -> Any:
        rate = slowest if batch.accumulation_steps == 1 else gain * slowest
        return SimpleNamespace(samples_per_second=rate, batch=batch)

    evaluator: Any = SimpleNamespace(workload=workload, judge_uncounted=judged_at)
    known, found = list(plans), []
    for family in accumulated(evaluator, RANKS, Ranking(prefer=prefer), known):
        assert family.batch is not None
        found.append(family.batch)
        used = 15 if family.batch.micro_batch >= cramped_from else 8
        made = planned(family.strategy.name, 1, 9.0)
        known.append(replace(made, family=family, profile=judged("made", (9.0,), used=used).profile))
    return found


SMALL = planned("ddp", 3, 1.1, once=0.3)
LARGE = planned("fsdp", 16, 1.0)


def test_a_small_batch_takes_as_many_steps_as_the_largest_has_samples() -> None:
    assert tried(SMALL, LARGE) == [Batch(micro_batch=3, accumulation_steps=5)]


def test_smaller_micro_batches_follow_where_gradients_that_wait_leave_no_room() -> None:
    eight = planned("ddp", 8, 1.1, once=0.3)
    cut = [Batch(micro_batch=8, accumulation_steps=2), Batch(micro_batch=6, accumulation_steps=2)]
    assert tried(eight, LARGE, cramped_from=8) == cut
    assert tried(eight, LARGE, cramped_from=1) == [*cut, Batch(micro_batch=4, accumulation_steps=4)]
    assert tried(eight, LARGE, cramped_from=1, prefer=Prefer.SPEED) == cut[:1], "it fits, which is enough there"
    assert tried(eight, LARGE, cramped_from=1, micro_batch=8) == cut[:1], "what was given is not cut"


def test_what_would_gain_nothing_is_not_tried() -> None:
    assert tried(planned("ddp", 3, 1.1, once=0.05), LARGE) == [], "were the update free, it would hardly be faster"
    assert tried(SMALL, LARGE, gain=1.04) == [], "evaluated, it gains no more than a tie"
    assert tried(SMALL) == [], "no step has more samples"


def test_offloading_neither_takes_steps_nor_gives_them() -> None:
    assert tried(SMALL, planned("zero2", 64, 1.0, offload=Offload.OPTIMIZER)) == []


@pytest.mark.parametrize("given", [{"global_batch": 64}, {"grad_accum": 1}])
def test_what_was_given_is_not_searched(given: dict[str, int]) -> None:
    assert tried(SMALL, LARGE, **given) == []
    assert tried(SMALL, LARGE, prefer=Prefer.MEMORY) == []
