"""What the search tries within a family, what it calls the best, and what belongs to the front."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.device_use import Simulated
from gpu_plan.planner.search.front import axes, front
from gpu_plan.planner.search.ranking.rules import Ranking, standing
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.search.training.candidates import Batch
from gpu_plan.planner.search.training.explore import explored
from gpu_plan.planner.search.training.relaxed import relaxed
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import Workload
from tests.unit.search.test_one_search import Judged, Sharded, judged
from tests.unit.search.test_ranking import judged as plan

TIGHT = Simulated(reserved_bytes=17 * GIB, reserved_under_pressure=8 * GIB, retries=1)
FULL = Simulated(reserved_bytes=17 * GIB, reserved_under_pressure=None, retries=1)


# -- within a family --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Judged):
    """A batch that takes a gibibyte a sample above the states."""

    batch: Batch


class Evaluator:
    """Judges batches by a rate of samples that grows with them, but for `rates`; says what it was asked for."""

    def __init__(self, *, states: int = 1, rates: dict[int, float] | None = None, full: tuple[int, ...] = ()) -> None:
        self.workload = SimpleNamespace(global_batch=None)
        self.host_limit = None
        self.asked: list[int] = []
        self._states, self._rates, self._full = states, rates or {}, full

    def host_shortage(self, judgement: object) -> None:
        return None

    def disk_shortage(self, judgement: object) -> None:
        return None

    def _cut(self, size: int) -> Cut:
        base = judged((self._states + size) * GIB)
        fields = {name: getattr(base, name) for name in ("profile", "terms", "host_bytes", "capacity_bytes")}
        rate = self._rates.get(size, float(size))
        return Cut(**fields, rate=rate, batch=Batch(micro_batch=size, accumulation_steps=1))

    def judge_states(self, family: object, batch: Batch) -> Cut:
        return replace(self._cut(0), batch=batch)

    def judge(self, family: object, batch: Batch) -> Cut:
        self.asked.append(batch.micro_batch)
        return self._cut(batch.micro_batch)

    def may_fit(self, judgement: Cut) -> bool:
        return judgement.device_verdict == "fits"

    def simulate(self, judgement: Cut, *, pressed: bool = True) -> Cut:
        return replace(judgement, simulated=FULL) if judgement.batch.micro_batch in self._full else judgement


FAMILY = SimpleNamespace(tensor_parallel=1, copy_ranks=1, layout=None)


def run(evaluator: Evaluator, *sizes: int, exhaustive: bool = False) -> Explored[Any]:
    cuts = [Batch(micro_batch=size, accumulation_steps=1) for size in sizes or (1, 2, 4, 8, 16, 32)]
    return explored(evaluator, FAMILY, cuts, exhaustive=exhaustive)  # type: ignore[arg-type]


def test_between_one_that_fits_and_one_whose_allocator_finds_no_room_half_way_is_tried() -> None:
    """8 fits, 12 and more leave room by their tensors and fail: 10 is faster than 8, and 11 than 10."""
    evaluator = Evaluator(full=(12, 13, 14, 15))
    found = run(evaluator)
    assert found.best is not None
    assert found.best.batch.micro_batch == 11
    assert evaluator.asked.count(10) == evaluator.asked.count(11) == 1
    near = run(Evaluator(full=(12, 13, 14, 15), rates={12: 10.4, 14: 10.4, 15: 10.4, 16: 10.4})).best
    assert near is not None
    assert near.batch.micro_batch == 10, "what 12 would gain over it counts as a tie"
    slower = run(Evaluator(full=(12, 13, 14, 15), rates={10: 1.0, 11: 1.0})).best
    assert slower is not None
    assert slower.batch.micro_batch == 8


def test_the_fastest_that_fits_is_taken() -> None:
    found = run(Evaluator())
    assert found.best is not None
    assert found.best.batch.micro_batch == 15, "between 8, which fits 16 GiB, and 16, which does not"
    slower = run(Evaluator(rates={size: 0.5 for size in range(8, 17)}))
    assert slower.best is not None
    assert slower.best.batch.micro_batch == 4


def test_what_runs_out_when_it_is_simulated_leaves_the_next() -> None:
    found = run(Evaluator(full=tuple(range(8, 16))))
    assert found.best is not None
    assert found.best.batch.micro_batch == 7, "half way to the next, which ran out, and half way again"
    found = run(Evaluator(full=tuple(range(5, 16))))
    assert found.best is not None
    assert found.best.batch.micro_batch == 4


def test_one_sample_alone_is_tried_where_nothing_larger_fits() -> None:
    evaluator = Evaluator(states=14)
    found = run(evaluator)
    assert found.best is not None
    assert found.best.batch.micro_batch == 2, "ascending from two"
    tighter = Evaluator(states=15)
    found = run(tighter)
    assert found.best is not None
    assert (found.best.batch.micro_batch, tighter.asked) == (1, [2, 1])


def test_states_that_do_not_fit_are_not_traced_unless_all_is_asked_for() -> None:
    evaluator = Evaluator(states=17)
    found = run(evaluator)
    assert (found.best, evaluator.asked) == (None, [])
    assert found.rejected is not None
    assert "needs" in found.rejected.reason
    run(evaluator, exhaustive=True)
    assert evaluator.asked


# -- over families ----------------------------------------------------------------------------------------------


class Families(Sharded):
    """A task with what is given of every family: a plan, one that does not fit, or a refusal in words."""

    def __init__(self, **given: Judged | Rejected[Judged] | str) -> None:
        super().__init__(parse_cluster("1xT4"))
        self.given = given

    def families(self) -> Iterator[str]:
        return iter(self.given)

    def name(self, family: str) -> str:
        return family

    def refusal(self, family: str) -> str | None:
        said = self.given[family]
        return said if isinstance(said, str) else None

    def words_of(self, family: str) -> str:
        return family

    def by_states(self, family: str) -> None:
        return None

    def explore(self, family: str, *, exhaustive: bool) -> Explored[Judged]:
        found = self.given[family]
        return Explored(rejected=found) if isinstance(found, Rejected) else Explored(best=found)  # type: ignore[arg-type]


def test_a_plan_that_may_not_fit_is_shown_and_is_not_the_best() -> None:
    found = search(Families(one=judged(GIB, simulated=TIGHT)))
    assert [one.verdict for one in found.plans] == ["tight"]
    assert found.best is None


def test_what_does_not_fit_stands_with_the_nearest_first() -> None:
    far, near = (Rejected(judgement=judged(size * GIB), reason=f"{size}") for size in (90, 20))
    found = search(Families(far=far, near=near))
    assert [rejected.reason for rejected in found.rejected] == ["20", "90"]


def test_options_that_leave_no_family_are_refused() -> None:
    with pytest.raises(UsageError, match="ddp: there is only one GPU: change that option or leave it out"):
        search(Families(ddp="there is only one GPU"))


def test_only_what_fits_is_on_the_front_and_host_memory_counts() -> None:
    fast, frugal = plan("fast", (1.0,), used=8, host=40), plan("frugal", (2.0,), used=9, host=0)
    assert front([fast, frugal]) == {0, 1}, "slower and larger, and nothing of the node's RAM"
    tight = replace(plan("tight", (0.5,), used=4), simulated=TIGHT)
    assert front([fast, tight]) == {0}
    assert len(axes(fast)) == 3


def test_what_may_not_fit_goes_before_what_needs_ram_that_is_not_known() -> None:
    sure = plan("sure", (9.0,))
    tight = replace(plan("tight", (2.0,)), simulated=TIGHT)
    needy = plan("needy", (1.0,), host=40, usual_host_bytes=32 * GIB)
    assert [standing(one) for one in (sure, tight, needy)] == [0, 1, 2]
    assert [one.name for one in Ranking().ordered([needy, tight, sure])] == ["sure", "tight", "needy"]


def test_ram_that_is_just_enough_is_no_condition() -> None:
    assert plan("exact", (1.0,), host=32, usual_host_bytes=32 * GIB).verdict == "fits"
    assert plan("above", (1.0,), host=33, usual_host_bytes=32 * GIB).verdict == "tight"


# -- smaller jobs -----------------------------------------------------------------------------------------------


def test_a_smaller_batch_gives_the_global_one_up_and_offload_only_grows() -> None:
    asked = Workload(micro_batch=8, global_batch=64, strategy="zero3", offload="optimizer")
    offered = dict(relaxed(asked, can_checkpoint=True, is_cpu=False))
    assert offered["--micro-batch 1"].global_batch is None
    assert {words for words in offered if words.startswith("--offload")} == {"--offload all", "--offload nvme"}


def test_a_nodes_gpus_share_its_disk() -> None:
    swapped = Collective(kind="disk_to_host", bytes=3 * 10**9, phase="step", per="step", overlap=False)
    one, eight = (call_seconds(swapped, parse_cluster(spec)) for spec in ("1xA100", "8xA100"))
    assert eight.expected == pytest.approx(8 * one.expected)
