"""Selective checkpointing and every k-th layer: traced bytes against the CPU allocator's own events.

The real step runs torch's own selective contexts with no recorder around them; the trace runs them under its own.
Ranks with selective checkpointing stand in `test_distributed`.
"""

import pytest

from gpu_plan.planner.speed.operators import RECOMPUTE
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.accuracy.cases import Case, reference_of, trace_of
from tests.support.replay_cpu import measured, replayed, same_stream
from tests.support.sample import sample

WAYS = ((Checkpointing.SELECTIVE, 1), (Checkpointing.FULL, 2), (Checkpointing.SELECTIVE, 2))
DEEP = {"num_hidden_layers": 12}


@pytest.mark.parametrize(
    ("name", "mode", "every"),
    sample(
        [(name, *way) for name in ("llama-3", "gpt2") for way in WAYS],
        kept=[*(("llama-3", *way) for way in WAYS), ("gpt2", *WAYS[0])],
    ),
)
def test_every_allocation_and_free_in_order(name: str, mode: Checkpointing, every: int) -> None:
    case = Case(architecture=name, checkpointing=mode, every=every)
    assert same_stream(trace_of(case, fold=False), case.micro_batch, reference_of(case))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "every"), WAYS)
def test_layers_that_are_traced_once_and_copied(mode: Checkpointing, every: int) -> None:
    case = Case(architecture="llama-3", checkpointing=mode, every=every, changes=DEEP)
    assert replayed(trace_of(case), case.micro_batch) == measured(reference_of(case))


@pytest.mark.slow
def test_what_is_held_lies_between_none_and_full() -> None:
    def held(mode: Checkpointing, every: int = 1) -> int:
        case = Case(architecture="llama-3", checkpointing=mode, every=every, changes=DEEP)
        return measured(reference_of(case)).forward_end

    nothing, full = held(Checkpointing.NONE), held(Checkpointing.FULL)
    assert full < held(Checkpointing.SELECTIVE) < held(Checkpointing.SELECTIVE, 2) < nothing
    assert full < held(Checkpointing.FULL, 2) < held(Checkpointing.FULL, 4) < nothing


def _products_again(trace: StepTrace) -> int:
    """Matrix products that are computed again."""
    products = {index for index, name in enumerate(trace.operator_names) if name == "mm"}
    rows = zip(trace.op_name.tolist(), trace.op_phase.tolist(), strict=True)
    return sum(name in products and phase == RECOMPUTE for name, phase in rows)


def test_torchtitan_computes_every_second_product_again() -> None:
    """Of a layer's seven (queries, keys, values, output, gate, up, down) the second, fourth and sixth."""
    kept = Case(architecture="llama-3", checkpointing=Checkpointing.SELECTIVE)
    titan = Case(architecture="llama-3", checkpointing=Checkpointing.SELECTIVE, stack=Stack.TORCHTITAN)
    layers = ARCHITECTURES["llama-3"].config()["num_hidden_layers"]
    assert _products_again(trace_of(kept)) == 0
    assert _products_again(trace_of(titan)) == 3 * layers
    assert same_stream(trace_of(titan, fold=False), titan.micro_batch, reference_of(titan))


def test_the_comparison_can_fail() -> None:
    """The figures tell the ways of checkpointing apart."""
    traced = replayed(trace_of(Case(architecture="llama-3", checkpointing=Checkpointing.SELECTIVE)), 2)
    for other in (Case(architecture="llama-3", checkpointing=m) for m in (Checkpointing.NONE, Checkpointing.FULL)):
        assert traced != measured(reference_of(other))


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("attention", [Attention.SDPA, Attention.EAGER])
@pytest.mark.parametrize(("mode", "every"), WAYS)
def test_all(name: str, attention: Attention, mode: Checkpointing, every: int) -> None:
    case = Case(architecture=name, attention=attention, checkpointing=mode, every=every)
    assert replayed(trace_of(case), case.micro_batch) == measured(reference_of(case))
