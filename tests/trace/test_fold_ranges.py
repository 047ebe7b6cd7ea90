"""Micro batches that one linear trace covers, and those that stand alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile, KernelProfile
from gpu_plan.planner.trace.recording import recorded as recorded_module
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.rules import Ruled
from gpu_plan.planner.trace.sizes.ranges import RANGES, ranges_for
from gpu_plan.planner.trace.step import Session
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES


def tracer_of(model: nn.Module, profile: KernelProfile | None = None) -> Tracer:
    def batch(module: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
        return training_batch(module, batch=micro_batch, seq_len=seq_len)

    return Tracer(model=model, make_batch=batch, profile=profile or CudaProfile(), has_sequence=True)


def variant(seq_len: int, regime: Regime | None = None) -> StepVariant:
    return StepVariant(
        regime=regime or Regime(weights="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=seq_len,
    )


def test_one_sample_lies_in_no_range_and_neither_does_a_size_that_stands_alone() -> None:
    assert list(ranges_for(1)) == [(1,)]
    assert min(points[0] for points in RANGES) > 1
    assert list(ranges_for(16)) == [(2, 4, 16), (4, 8, 16), (16, 32, 64), (16,)]
    assert list(ranges_for(16, alone=True)) == [(16,)]
    assert list(ranges_for(257)) == [(257,)]


@pytest.mark.parametrize(
    ("seq_len", "micro_batch", "samples"),
    [
        (128, 1, (1,)),
        (128, 2, (2, 4, 16)),
        (128, 16, (2, 4, 16)),
        (1024, 2, (2,)),  # 2048 tokens: the embedding's backward sorts only above 3072
        (1024, 3, (3,)),
        (1024, 8, (4, 8, 16)),
        (1024, 40, (16, 32, 64)),
        (1024, 300, (300,)),
    ],
)
def test_ranges(seq_len: int, micro_batch: int, samples: tuple[int, ...]) -> None:
    model = build_model(ARCHITECTURES["llama-3"].config(max_position_embeddings=2048))
    assert tracer_of(model).trace(variant(seq_len), micro_batch).samples == samples


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Micro batches that are recorded."""
    sizes, record = [], Tracer._record

    def counted(self: Tracer, session: Session, variant: StepVariant, micro_batch: int) -> Recording:
        sizes.append(micro_batch)
        return record(self, session, variant, micro_batch)

    monkeypatch.setattr(Tracer, "_record", counted)
    return sizes


class Unruled(CudaProfile):
    """Kernels of which no rule is known."""

    def scratch(self, operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
        ruled = [one.nbytes(0) for one in super().ruled_scratch(operator, args)]
        return super().scratch(operator, args, outputs) + [nbytes for nbytes in ruled if nbytes]

    def ruled_scratch(self, operator: str, args: tuple[Any, ...]) -> list[Ruled]:
        return []


def test_what_was_recorded_for_a_range_that_breaks_is_not_recorded_again(
    monkeypatch: pytest.MonkeyPatch, recorded: list[int]
) -> None:
    """At 1024 tokens two samples are of another structure than four: (2, 4, 16) breaks, (2,) and (4, 8, 16) stand."""
    model = build_model(ARCHITECTURES["llama-3"].config(max_position_embeddings=2048))
    tracer = tracer_of(model, Unruled())
    found = [tracer.trace(variant(1024), size) for size in (2, 4)]
    assert [trace.samples for trace in found] == [(2,), (4, 8, 16)]
    assert recorded == [2, 16, 4, 8]
    alone = tracer_of(model, Unruled()).trace(variant(1024), 2)
    assert np.array_equal(found[0].kind, alone.kind)
    assert np.array_equal(found[0].tensor_bytes(2), alone.tensor_bytes(2))
    monkeypatch.setattr(recorded_module, "MOST_APART", 0)
    tracer.trace(variant(1024, Regime(weights="float32")), 2)
    assert not tracer.recorded.apart, "what is kept is bounded"


COLUMNS = [name for name in StepTrace.__dataclass_fields__ if name not in ("parameters", "layout", "notes")]


@pytest.mark.parametrize("kind", ["llama-3", "gemma-2", "umt5", "gpt2"])
@pytest.mark.parametrize("seq_len", [512, 1024])
def test_what_follows_a_rule_is_told_as_it_would_be_recorded(kind: str, seq_len: int, recorded: list[int]) -> None:
    """A vocabulary of 4,096 tokens: the embedding's backward bends at 3,072 indices and at as many as there are rows;
    UMT5 has an embedding in every block."""
    if kind == "umt5":
        config = ARCHITECTURES["t5"].config(vocab_size=4096, num_layers=6, num_decoder_layers=6, model_type="umt5")
        model = build_model(config | {"architectures": ["UMT5ForConditionalGeneration"]})
    else:
        model = build_model(ARCHITECTURES[kind].config(vocab_size=4096, max_position_embeddings=2048))
    tracer = tracer_of(model)
    told = {size: tracer.trace(variant(seq_len), size) for size in (2, 3, 5, 6, 7, 9, 12, 16)}
    assert recorded == [2, 16]
    for size, trace in told.items():
        alone = tracer_of(model, Unruled()).trace(variant(seq_len), size)
        if alone.samples != (size,):
            alone = tracer_of(model, Unruled())._build(variant(seq_len), (size,)).trace
        same = told[size] if trace.samples == (size,) else None
        assert np.array_equal(trace.kind, alone.kind)
        assert np.array_equal(trace.subject, alone.subject)
        off = trace.tensor_bytes(size) - alone.tensor_bytes(size)
        assert np.abs(off).max() <= (0 if same is not None else 8 * model.config.hidden_size)
        for name in COLUMNS if same is not None else ():
            assert np.array_equal(getattr(trace, name), getattr(alone, name)), name


@pytest.mark.parametrize("wide", [False, True], ids=["soonest", "for as many as can be"])
def test_a_size_is_told_alone_at_once_or_after_the_ranges_that_hold_it(wide: bool, recorded: list[int]) -> None:
    """A vocabulary of 10,240 tokens bends at ten samples of 1,024: only (16, 32, 64) of the ranges is straight."""
    tracer = tracer_of(build_model(ARCHITECTURES["llama-3"].config(vocab_size=10240, max_position_embeddings=2048)))
    tracer.wide = wide
    found = [tracer.trace(variant(1024), size).samples for size in (2, 16, 16)]
    assert found == [(2,), *[(16, 32, 64) if wide else (16,)] * 2]
    assert recorded == ([2, 4, 16, 32, 64] if wide else [2, 16])


def test_the_next_range_begins_with_what_the_last_one_ended_with(recorded: list[int]) -> None:
    tracer = tracer_of(build_model(ARCHITECTURES["llama-3"].config()))
    assert [tracer.trace(variant(16), size).samples for size in (2, 40)] == [(2, 4, 16), (16, 32, 64)]
    assert recorded == [2, 16, 64]


@pytest.mark.parametrize("micro_batch", [5, 8, 11])
def test_inside_a_range_the_line_is_exact(micro_batch: int) -> None:
    """The trace at a size of its own says the same as the line through others."""
    model = build_model(ARCHITECTURES["gemma-2"].config())
    tracer = tracer_of(model)
    line = tracer.trace(variant(64), micro_batch)
    alone = tracer._build(variant(64), (micro_batch,)).trace
    assert line.samples == (2, 4, 16)
    assert np.array_equal(line.kind, alone.kind)
    assert np.array_equal(line.subject, alone.subject)
    assert np.array_equal(line.tensor_bytes(micro_batch), alone.tensor_bytes(micro_batch))


def test_images_come_in_the_weights_type_unless_autocast_converts_them() -> None:
    model = build_model(ARCHITECTURES["vit"].config())
    for regime, size, notes in (
        (Regime(weights="bfloat16"), 2, 1),
        (Regime(weights="float32"), 4, 0),
        (Regime(weights="float32", autocast="bfloat16"), 4, 0),
    ):
        trace = tracer_of(model).trace(variant(1, regime), 1)
        pixels = {name: slope + fixed for name, slope, fixed in trace.inputs}["pixel_values"]
        assert pixels == 3 * 64 * 64 * size
        assert len([note for note in trace.notes if "floating-point inputs" in note]) == notes
    assert torch.get_default_dtype() is torch.float32
