"""Stages of Megatron-core are traced once for what they have in common."""

from dataclasses import replace

import pytest

from gpu_plan.planner.megatron.architecture import Architecture, Experts
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import Part
from gpu_plan.planner.megatron.stages import cuts
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.megatron.stage import build_stage, stage_batch
from gpu_plan.planner.trace.session import _MOST_TRACERS, TracingSession
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

MODEL = Architecture(layers=8, hidden=64, intermediate=128, heads=4, groups=4, head_dim=16, vocabulary=256)


@pytest.fixture
def session() -> TracingSession:
    return TracingSession(resolve("examples/tiny-llama"), DeviceKind(capability=(9, 0), sm_count=132), "sdpa")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    record = Tracer._record

    def counted(self: Tracer, inner: object, variant: StepVariant, micro_batch: int) -> object:
        sizes.append(micro_batch)
        return record(self, inner, variant, micro_batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Tracer, "_record", counted)
    return sizes


def variant_of(layout: Layout, stage: int) -> StepVariant:
    return StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=32,
        part=Part(model=MODEL, layout=layout.own(), cut=cuts(MODEL.layers, layout)[stage]),
    )


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_micro_batch_that_a_range_spans_is_not_recorded_again(
    session: TracingSession, recorded: list[int], tensor: int
) -> None:
    layout = Layout(pipeline=4, tensor=tensor, sequence=tensor > 1)
    first = session.trace(variant_of(layout, 1), 2)
    once = list(recorded)
    assert max(once) > 2
    later = session.trace(variant_of(layout, 1), 4)
    assert recorded == once
    alone = TracingSession(resolve("examples/tiny-llama"), DeviceKind(capability=(9, 0), sm_count=132), "sdpa")
    fresh = alone.trace(variant_of(layout, 1), 4)
    for one in (first, later):
        assert list(one.tensor_bytes(4)) == list(fresh.tensor_bytes(4))


def test_stages_of_equal_layers_are_traced_once(session: TracingSession, recorded: list[int]) -> None:
    layout = Layout(pipeline=4)
    second = session.trace(variant_of(layout, 1), 2)
    once = list(recorded)
    third = session.trace(variant_of(layout, 2), 4)
    assert recorded == once
    assert list(second.tensor_bytes(4)) == list(third.tensor_bytes(4))


def test_layers_that_are_run_again_are_recorded_whole_at_once(session: TracingSession, recorded: list[int]) -> None:
    trace = session.trace(variant_of(Layout(pipeline=2, recompute="full"), 1), 1)
    assert recorded == [1], "no attempt to fold before"
    assert not any("one by one" in note for note in trace.notes)


def test_no_more_than_a_few_are_held(session: TracingSession) -> None:
    for hidden in range(_MOST_TRACERS + 2):
        layout = Layout(pipeline=4, hidden_dropout=0.1 + hidden / 100)
        session.trace(variant_of(layout, 1), 1)
    assert len(session._tracers) == _MOST_TRACERS


@pytest.mark.parametrize("experts", [None, Experts(count=8, chosen=2, width=64)])
def test_a_recording_that_is_given_up_leaves_no_gradients_to_the_next(experts: Experts | None) -> None:
    """What is run again cannot be folded, which shows in the middle of a backward pass."""
    model = replace(MODEL, experts=experts)
    layout = Layout(pipeline=2, recompute="full")
    part = Part(model=model, layout=layout.own(), cut=cuts(MODEL.layers, layout)[1])
    told = []
    for fold in (True, False):
        tracer = Tracer(
            model=build_stage(part),
            make_batch=lambda _, samples, length: stage_batch(part, samples, length),
            profile=kernel_profile(DeviceKind(capability=(9, 0), sm_count=132)),
            has_sequence=True,
            fold=fold,
        )
        trace = tracer.trace(replace(variant_of(layout, 1), part=part), 1)
        told.append([trace.operator_names[one] for one in trace.op_name])
    assert told[0] == told[1]
