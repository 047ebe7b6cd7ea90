"""What a rank's attention holds under Ulysses: DeepSpeed's own class on meta, beside what the planner does."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from unittest import mock

import pytest
import torch.distributed

from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import Kind, StepTrace
from gpu_plan.planner.trace.parallel import context
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")]
LENGTH = 64


def deepspeeds(attention: Callable[..., Any], ranks: int, known: Any) -> Callable[..., Any]:
    """`context._ulysses` by the class that runs."""
    import torch.distributed as dist
    from deepspeed.runtime.sequence_parallel import ulysses_sp

    def forward(module: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **words: Any) -> Any:
        made = ulysses_sp.UlyssesSPAttentionHF(
            attn=attention,
            batch_size=query.shape[0],
            attn_head_count=query.shape[1],
            attn_head_size=query.shape[3],
            kv_head_count=key.shape[1],
            num_hidden_layers=1,
            process_group=dist.group.WORLD,
            seq_length_is_variable=True,
        )
        return made.forward(module, query, key, value, None, *args, **words)

    return forward


def traced(architecture: str, degree: int, checkpointing: Checkpointing) -> StepTrace:
    config = ARCHITECTURES[architecture].config(num_hidden_layers=2)
    source = ModelSource(kind="config", id="x", config=config, digest="x")
    session = TracingSession(source, DeviceKind(capability=(9, 0), sm_count=132), "sdpa")
    variant = StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=LENGTH,
        split=SequenceSplit(degree=degree, method="ulysses"),
    )
    return session.trace(variant, 2)


def memory(trace: StepTrace) -> list[tuple[str, int]]:
    """Every storage as it comes and goes, by its bytes."""
    sizes = trace.tensor_bytes(2)
    names = {Kind.ALLOC: "alloc", Kind.FREE: "free"}
    pairs = zip(trace.kind, trace.subject, strict=True)
    return [(names[Kind(kind)], int(sizes[subject])) for kind, subject in pairs if Kind(kind) in names]


@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize(("architecture", "degree"), [("llama-3", 2), ("llama-3", 4), ("llama-2", 2)])
def test_storages_come_and_go_as_in_deepspeed(architecture: str, degree: int, checkpointing: Checkpointing) -> None:
    from deepspeed.runtime.sequence_parallel import ulysses_sp
    from deepspeed.sequence import layer

    ours = traced(architecture, degree, checkpointing)
    # Its own names for torch's collectives, which ask for a backend that it has made itself.
    torchs = (mock.patch.object(module, "dist", torch.distributed) for module in (layer, ulysses_sp))
    with mock.patch.object(context, "_ulysses", deepspeeds), next(torchs), next(torchs):
        theirs = traced(architecture, degree, checkpointing)
    assert memory(ours) == memory(theirs)
