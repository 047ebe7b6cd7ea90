"""What an engine's 16-bit arithmetic spares beside whole copies, by value: of steps whose seconds are made up."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.whole import holds_whole, leaves_room
from gpu_plan.planner.search.training.widths.arithmetic import spared_beside_copies
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing

WIDE = SimpleNamespace(autocast="bfloat16")
NARROW = SimpleNamespace(autocast=None)
RANKS = 4
TWO = Batch(micro_batch=2, accumulation_steps=1)


def family(name: str, offload: Offload = Offload.NONE) -> Family:
    return Family(strategy=STRATEGIES[name], offload=offload, checkpointing=Checkpointing.NONE)


class Evaluator:
    """Whole copies take 0.8 s a micro step (0.6 to 1.0), everything else 0.6 (0.5 to 0.9); `room` is what a copy of so
    many samples leaves of 100 bytes."""

    def __init__(
        self, *, verdict: str = "fits", room: dict[int, int] | None = None, strategy: str | None = None
    ) -> None:
        self.workload: Any = SimpleNamespace(
            strategy=strategy,
            micro_batch=None,
            checkpointing=None,
            precision=SimpleNamespace(is_float8=False),
            stack=SimpleNamespace(traits=SimpleNamespace(strategies=())),
        )
        self.cluster: Any = SimpleNamespace(gpu=SimpleNamespace(is_cpu=False), world_size=RANKS)
        self.provider: Any = SimpleNamespace(
            trace=lambda variant, size: variant, spec=lambda: SimpleNamespace(can_checkpoint=True)
        )
        self.speed: Any = SimpleNamespace(step_time=self._time)
        self.kept_computing: dict[Any, tuple[float, ...]] = {}
        self.kept_rooms: dict[Any, bool] = {}
        self.asked: list[int] = []
        self._verdict, self._room = verdict, room or {}

    def variant(self, one: Family) -> Any:
        regime = WIDE if one.strategy.name == "ddp" else NARROW
        name = one.strategy.name
        return SimpleNamespace(regime=regime, compilation=None, key=lambda: name)

    def judge_states(self, one: Family, batch: Batch) -> Any:
        return SimpleNamespace(device_verdict=self._verdict)

    def judge_uncounted(self, one: Family, batch: Batch) -> Any:
        self.asked.append(batch.micro_batch)
        return SimpleNamespace(capacity_bytes=100, room_bytes=self._room[batch.micro_batch])

    def own_work(self, one: Family, batch: Batch, trace: Any, optimizer: Any, collectives: Any) -> Any:
        assert (optimizer.parameter_bytes_read_written, collectives) == (0, ())
        return one.strategy.name

    def _time(self, name: str, cluster: Any) -> Any:
        expected, *ends = (0.8, 0.6, 1.0) if name == "ddp" else (0.6, 0.5, 0.9)
        return SimpleNamespace(step_seconds=expected, corners=lambda: tuple(ends))


def test_seconds_of_a_sample_are_those_between_both_micro_steps() -> None:
    """0.2 s (0.1 to 0.1) of two samples on each of four ranks."""
    found = spared_beside_copies(Evaluator(), family("fsdp"), TWO)
    assert found == pytest.approx((0.2 / 8, 0.1 / 8, 0.1 / 8))


def test_a_whole_copy_and_what_offloads_are_spared_nothing() -> None:
    assert spared_beside_copies(Evaluator(), family("ddp"), TWO) == ()
    assert spared_beside_copies(Evaluator(), family("zero2", Offload.OPTIMIZER), TWO) == ()


def test_nothing_is_compared_where_no_device_holds_a_copy_or_one_strategy_was_asked_for() -> None:
    assert spared_beside_copies(Evaluator(verdict="no"), family("fsdp"), TWO) is None
    assert spared_beside_copies(Evaluator(strategy="fsdp"), family("fsdp"), TWO) is None
    assert not holds_whole(Evaluator(verdict="no"), family("fsdp"), TWO)


@pytest.mark.parametrize(
    ("room", "expected", "asked"),
    [({2: 10}, True, [2]), ({2: 9, 1: 10}, True, [2, 1]), ({2: -40, 1: 3}, False, [2, 1])],
)
def test_copies_leave_room_where_a_tenth_stays_free_at_a_small_batch(
    room: dict[int, int], expected: bool, asked: list[int]
) -> None:
    evaluator = Evaluator(room=room)
    assert leaves_room(evaluator, family("fsdp"), TWO) is expected
    assert leaves_room(evaluator, family("fsdp"), TWO) is expected
    assert evaluator.asked == asked, "once"
