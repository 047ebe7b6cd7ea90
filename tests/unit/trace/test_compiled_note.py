"""What a provider says before it compiles a whole model."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.provider import ONE_GRAPH, TraceProvider
from gpu_plan.planner.trace.variant import Compilation, Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.tiny_trace import tiny_trace


@dataclass
class Session:
    """Gives a trace of its own for whatever is asked."""

    asked: list[int] = field(default_factory=list)

    def trace(self, variant: StepVariant, micro_batch: int) -> Any:
        self.asked.append(micro_batch)
        return tiny_trace([(4, 4)])


def variant(regions: str) -> StepVariant:
    return StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=8,
        compilation=Compilation(backend="inductor", regions=regions),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("regions", "said"), [("model", [ONE_GRAPH]), ("regional", [])])
def test_a_whole_model_as_one_graph_is_said_to_take_long(
    monkeypatch: pytest.MonkeyPatch, regions: str, said: list[str]
) -> None:
    notes: list[str] = []
    provider = TraceProvider(
        source=resolve("examples/tiny-llama"),
        device=DeviceKind(capability=(8, 0), sm_count=108),
        attention="sdpa",
        use_cache=False,
        shipped=False,
        note=notes.append,
    )
    session = Session()
    monkeypatch.setattr(provider, "_session", session)
    monkeypatch.setattr(TraceProvider, "_open_session", lambda self, variant=None: session)
    provider.trace(variant(regions), 1)
    assert session.asked == [1]
    assert notes == said
