"""What a module reads of another that does not run, noted in a trace."""

import importlib.util
import re
from pathlib import Path

import pytest
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


OF_SHIPPED = ("llama", "qwen2", "qwen3", "mistral", "mixtral", "gpt_oss", "gemma2")
"""Families whose traces are shipped (tests.support.shipped_traces: MODELS), some made before reads were noted."""


@pytest.mark.parametrize("family", OF_SHIPPED)
def test_families_that_are_shipped_read_nothing_of_others(family: str) -> None:
    """So that a shipped trace without a record says what one with a record would. Kept traces are of this program's own
    files alone (cache_dir.py: program_digest)."""
    found = importlib.util.find_spec(f"transformers.models.{family}.modeling_{family}")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text()
    assert re.findall(r"self\.\w+(?:\.\w+)*\.(?:weight|bias)\b", source) == []
