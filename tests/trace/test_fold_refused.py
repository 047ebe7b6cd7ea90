"""Models that do something with their blocks are traced one block at a time, and say why."""

from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.same_trace import assert_same_trace

WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.up(x)) + x


class Stack8(nn.Module):
    """Eight equal blocks in a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.mean()


class Between(Stack8):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * 2
        return x.mean()


class Gathers(Stack8):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        return torch.stack(states).mean()


class Watches(Stack8):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x.detach())
        return x.mean() + torch.stack(states).mean()


class Counts(Stack8):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [x]
        for layer in self.layers:
            x = layer(x)
            states += [x] if type(layer) is Block else []
        return states[8].mean()


def trace(model: nn.Module, *, fold: bool = True) -> tuple[Tracer, Any]:
    def batch(module: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
        x = torch.empty(micro_batch, 4, WIDTH, device="meta")
        return TrainingBatch(tensors={"x": x}, values={}, loss="mean")

    tracer = Tracer(model=model, make_batch=batch, profile=CudaProfile(), has_sequence=False, fold=fold)
    step = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=1,
    )
    return tracer, tracer.trace(step, 2)


@pytest.mark.parametrize(
    ("model_class", "reason"),
    [
        (Stack8, None),
        (Between, "the model computes between its blocks"),
        (Gathers, "neighbouring blocks differ"),
        (Watches, "something outside the blocks reads their tensors"),
        (Counts, "IndexError"),
    ],
)
def test_the_trace_is_the_full_one_whatever_the_model_does(model_class: type[nn.Module], reason: str | None) -> None:
    with torch.device("meta"):
        model = model_class()
    tracer, got = trace(model)
    assert [reason in note for note in tracer.notes] == ([] if reason is None else [True])
    assert bool(tracer.folds()) == (reason is None)
    got.notes = []
    _, full = trace(model, fold=False)
    assert_same_trace(got, full)


def test_what_fails_without_folding_too_is_told() -> None:
    class Broken(Stack8):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("of its own")

    with torch.device("meta"):
        model = Broken()
    with pytest.raises(ValueError, match="of its own"):
        trace(model)
