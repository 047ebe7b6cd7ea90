"""What a module reads of another that does not run, noted in a trace."""

import torch
from torch import nn

from gpu_plan.planner.trace.events import numberless
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.reads import Reads
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import trace_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.to(self.inner.weight.dtype)) * self.scale


def test_a_child_s_weight_is_the_reader_s_and_its_own_are_not() -> None:
    model = nn.Sequential(Block(), Block())
    own = model[0]._parameters
    tracker = ModuleTracker(model)
    reads = Reads(model, tracker)
    with tracker, reads.watched():
        model(torch.ones(2, 4))
        model[0].inner.weight  # noqa: B018  (read by the loop, while nothing runs)
    assert reads.names() == {f"{numberless(f'{block}.inner.weight')} 1" for block in range(2)}
    assert model[0]._parameters is own


def test_traces_say_who_reads_what() -> None:
    """modeling_vit.py reads `projection.weight.dtype`; Llama reads nothing of others."""
    assert "vit" in ARCHITECTURES
    assert trace_of(RankCase(architecture="vit")).layout.read == (
        "vit.embeddings.patch_embeddings.projection.weight 1",
    )
    assert trace_of(RankCase(architecture="llama-3")).layout.read == ()
