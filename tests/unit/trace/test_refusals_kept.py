"""What a model refuses is asked of it once: finding out imports its class, for seconds."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

WHY = "it has 3 attention heads, which 2 GPUs do not divide"


@dataclass
class Refusing:
    """A session that refuses whatever is asked."""

    asked: list[int] = field(default_factory=list)

    def trace(self, variant: StepVariant, micro_batch: int) -> Any:
        self.asked.append(micro_batch)
        raise CannotSplitError(WHY)


def variant(tensor_parallel: int) -> StepVariant:
    return StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=8,
        tensor_parallel=tensor_parallel,
    )


def provider(use_cache: bool) -> TraceProvider:
    return TraceProvider(
        source=resolve("examples/tiny-llama"),
        device=DeviceKind(capability=(8, 0), sm_count=108),
        attention="sdpa",
        use_cache=use_cache,
        shipped=False,
    )


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_refusal_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, use_cache: bool) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    session = Refusing()
    monkeypatch.setattr(TraceProvider, "_open_session", lambda self, variant=None: session)
    first, second = provider(use_cache), provider(use_cache)
    for one in (first, first, second):
        with pytest.raises(CannotSplitError, match="which 2 GPUs do not divide"):
            one.trace(variant(2), 1)
    assert session.asked == ([1] if use_cache else [1, 1])
    for further in (variant(2), 4), (variant(4), 1):
        with pytest.raises(CannotSplitError):
            first.trace(*further)
    assert session.asked[-2:] == [4, 1]
