"""A loss that the loop makes itself comes behind the moment at which its outputs are bound anew."""

from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.trace.events import Kind, Mark, StepTrace
from gpu_plan.planner.trace.inputs.given import given_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

ROWS, WIDTH = 8, 64


class Outputs:
    """What a loop holds; its loss takes a tensor of their size."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    @property
    def loss(self) -> torch.Tensor:
        return self.logits.exp().mean()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> Outputs:
        return Outputs(self.head(x))


def trace(stack: Stack) -> StepTrace:
    with torch.device("meta"):
        model = Model()

    def batch(traced: Any, size: int, seq_len: int) -> Any:
        return given_batch(traced, {"x": torch.zeros(1, ROWS, WIDTH)}, batch=size)

    tracer = Tracer(model=model, make_batch=batch, profile=CpuProfile(threads=1), has_sequence=False, fold=False)
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=stack,
        seq_len=ROWS,
    )
    return tracer.trace(variant, 1)


@pytest.mark.parametrize("stack", [Stack.PLAIN, Stack.ACCELERATE])
def test_outputs_of_the_pass_before_are_gone_when_a_loop_makes_its_loss(stack: Stack) -> None:
    made = trace(stack)
    bound = made.mark_position(Mark.OUTPUTS_BOUND)
    sizes = made.tensor_bytes(1)
    after = [
        int(sizes[made.subject[at]])
        for at in range(bound, made.mark_position(Mark.BACKWARD))
        if made.kind[at] == Kind.ALLOC
    ]
    assert max(after) == ROWS * WIDTH * 4


def test_a_trainer_holds_no_outputs_and_binds_its_loss() -> None:
    made = trace(Stack.TRAINER)
    between = range(made.mark_position(Mark.OUTPUTS_BOUND), made.mark_position(Mark.BACKWARD))
    assert not any(made.kind[at] == Kind.ALLOC for at in between)
