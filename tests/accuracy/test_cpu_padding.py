"""Steps on padded batches and with older losses, traced and run for real: the CPU allocator's own events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.inputs.padding import padded
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.setup.loss_variants import older_loss
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.replay_cpu import measured, replayed, unmatched
from tests.support.sample import sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedCase:
    """What is run on both sides."""

    architecture: str
    padding: str = "none"
    loss: str = "installed"
    attention: Attention = Attention.SDPA
    weights: str = "float32"
    micro_batch: int = 2


def _built(case: PaddedCase) -> nn.Module:
    values = ARCHITECTURES[case.architecture].config()
    return build_model(values, attention=case.attention.value, dtype=getattr(torch, case.weights))


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def trace_of(case: PaddedCase, model: nn.Module | None = None) -> StepTrace:
    tracer = Tracer(model=model or _built(case), make_batch=_batch, profile=CpuProfile(), has_sequence=True, fold=False)
    variant = StepVariant(
        regime=Regime(weights=case.weights),
        checkpointing=Checkpointing.NONE,
        attention=case.attention,
        stack=Stack.PLAIN,
        seq_len=48,
        loss=case.loss,
        padding=case.padding,
    )
    return tracer.trace(variant, case.micro_batch)


def reference_of(case: PaddedCase) -> Reference:
    meta = _built(case)
    model = real_twin(meta, getattr(torch, case.weights), case.attention.value)
    inputs = real_inputs(padded(meta, _batch(meta, case.micro_batch, 48), case.padding))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure(_with_loss(model, case.loss, training_step(model, inputs)))
    finally:
        torch.set_num_threads(threads)


def _with_loss(model: nn.Module, loss: str, step: Callable[[], Any]) -> Callable[[], Any]:
    if loss == "installed":
        return step

    def body() -> Any:
        with older_loss(model, loss):
            return step()

    return body


CASES = [
    PaddedCase(architecture="llama-3", padding="longest"),
    PaddedCase(architecture="llama-3", padding="0.25", micro_batch=1),
    PaddedCase(architecture="llama-3", padding="0.25", attention=Attention.EAGER),
    PaddedCase(architecture="gpt2", padding="longest"),
    PaddedCase(architecture="bert", padding="0.5"),
    PaddedCase(architecture="t5", padding="longest"),
    PaddedCase(architecture="gemma-2", padding="0.25"),
    PaddedCase(architecture="llama-3", loss="transformers-4.48"),
    PaddedCase(architecture="llama-3", loss="transformers-4.48", weights="bfloat16"),
    PaddedCase(architecture="qwen2", loss="transformers-4.45", weights="bfloat16"),
]


KEPT = [CASES[1], CASES[3], CASES[6], CASES[8]]
"""A share of padding, `longest`, a window beside it, and an older loss; the others are of the same kinds."""


@pytest.mark.parametrize(
    "case", sample(CASES, kept=KEPT), ids=lambda case: f"{case.architecture} {case.padding} {case.loss} {case.weights}"
)
def test_peak_and_held_bytes_equal(case: PaddedCase) -> None:
    trace, reference = trace_of(case), reference_of(case)
    assert replayed(trace, case.micro_batch) == measured(reference)
    if case.weights == "float32":
        assert unmatched(trace, case.micro_batch, reference) == {}


def test_each_is_a_stream_of_its_own() -> None:
    plain = replayed(trace_of(PaddedCase(architecture="llama-3", weights="bfloat16")), 2)
    shifted = replayed(trace_of(PaddedCase(architecture="llama-3", weights="bfloat16", loss="transformers-4.48")), 2)
    upcast = replayed(trace_of(PaddedCase(architecture="llama-3", weights="bfloat16", loss="transformers-4.45")), 2)
    logits = 2 * 48 * 512
    assert upcast.forward_end - shifted.forward_end == 2 * logits
    assert shifted.forward_end < plain.forward_end
    masked = replayed(trace_of(PaddedCase(architecture="llama-3", weights="bfloat16", padding="longest")), 2)
    assert masked.forward_end > plain.forward_end


def test_a_single_sample_is_its_own_longest() -> None:
    case = PaddedCase(architecture="llama-3", padding="longest", micro_batch=1)
    none = PaddedCase(architecture="llama-3", micro_batch=1)
    mask = 48
    difference = replayed(trace_of(case), 1).forward_end - replayed(trace_of(none), 1).forward_end
    assert 0 <= difference <= 16 * mask


def test_models_without_either_are_one_line() -> None:
    vit = build_model(ARCHITECTURES["vit"].config())
    with pytest.raises(UsageError, match="takes no attention mask beside tokens"):
        trace_of(PaddedCase(architecture="vit", padding="longest"), vit)
    with pytest.raises(UsageError, match="BertModel has no loss of causal language models"):
        trace_of(PaddedCase(architecture="bert", loss="transformers-4.48"))
