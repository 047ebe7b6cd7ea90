"""A step without checkpointing is the same behind one with it: frozen embeddings are let go of again."""

import pytest

from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.storage import dump
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

NONE, FULL = Checkpointing.NONE, Checkpointing.FULL


def traced(peft: str, *modes: Checkpointing) -> bytes:
    """The last of several steps of one session."""
    device = DeviceKind(capability=(8, 0), sm_count=108)
    session = TracingSession(resolve("examples/tiny-llama"), device, "sdpa", Adapter(peft=Peft(peft)))
    made = b""
    for mode in modes:
        variant = StepVariant(
            regime=Regime(weights="bfloat16"),
            checkpointing=mode,
            attention=Attention.SDPA,
            stack=Stack.ACCELERATE,
            seq_len=64,
        )
        made = dump(session.trace(variant, 1))
    return made


@pytest.mark.parametrize("peft", ["lora", "qlora"])
def test_the_order_of_steps_changes_none(peft: str) -> None:
    assert traced(peft, FULL, FULL, NONE) == traced(peft, NONE)
    assert traced(peft, NONE, FULL) == traced(peft, FULL)
