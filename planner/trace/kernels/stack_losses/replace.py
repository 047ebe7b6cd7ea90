"""Puts a stack's loss in the place of transformers' own for the time of a step."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.trace.kernels.stack_losses.chunks import litgpt_output, torchtune_output
from gpu_plan.planner.trace.kernels.stack_losses.policies import (
    llamafactory_alone_output,
    llamafactory_output,
    open_instruct_grpo_output,
    open_instruct_output,
    openrlhf_output,
    verl_entropy_output,
    verl_fused_output,
    verl_output,
)
from gpu_plan.planner.trace.kernels.stack_losses.trl import TiledOutput, sft_loss, tiled_output
from gpu_plan.planner.trace.kernels.stack_losses.value_heads import ValuedOutput, ppo_loss
from gpu_plan.planner.workload.losses import CACHED, GATHERED, PAIRED, UNREFERRED

Make = Callable[[torch.Tensor, nn.Module, torch.Tensor], Any]
"""(last hidden states, head, labels) -> outputs with a loss."""

STACK_LOSSES: Mapping[str, Make] = {
    "trl-1.16": tiled_output,
    "torchtune-0.7": torchtune_output,
    "litgpt-0.5": litgpt_output,
    "verl-0.8": verl_output,
    "verl-0.8-entropy": verl_entropy_output,
    "verl-0.8-fused": verl_fused_output,
    "openrlhf-0.11": openrlhf_output,
    CACHED: open_instruct_output,
    GATHERED: open_instruct_grpo_output,
    PAIRED: llamafactory_output,
    UNREFERRED: llamafactory_alone_output,
}
"""By value of `--set loss.variant`."""
_CAUSAL = "ForCausalLM"


@contextlib.contextmanager
def stack_loss(model: Any, variant: str) -> Iterator[None]:
    """UsageError where the model is none that transformers trains with its loss for causal language models."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else None
    if head is None or not type(base).__name__.endswith(_CAUSAL):
        raise UsageError(f"--set loss.variant={variant}: {type(base).__name__} has no loss of causal language models")
    with mock.patch.object(base, "forward", _forward(base, head, STACK_LOSSES[variant])):
        yield


def _forward(base: Any, head: Any, make: Make) -> Callable[..., Any]:
    """The backbone, then the head's weight where its module is entered: sharded, it is whole there.

    trl/trainer/utils.py: add_fused_lm_head gathers FSDP2's shards of it with full_tensor, and ZeRO-3's in a context.
    """
    own = head.forward

    def forward(input_ids: torch.Tensor, labels: torch.Tensor, **others: Any) -> Any:
        hidden = base.base_model(input_ids=input_ids, **{**others, "use_cache": False}).last_hidden_state

        def outputs_of(rows: torch.Tensor) -> Any:
            with mock.patch.object(head, "forward", own):
                return make(rows, _Inside(head, own), labels)

        with mock.patch.object(head, "forward", outputs_of):
            return head(hidden)

    return forward


class _Inside:
    """The head from inside its own call: its weights, and its product without a further entry."""

    def __init__(self, head: Any, own: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.weight, self.bias = head.weight, head.bias
        self._own = own

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return self._own(rows)


def loss_beside(outputs: Any) -> torch.Tensor | None:
    """The loss that the loop makes itself of a model's outputs; None where it takes the model's own."""
    if isinstance(outputs, ValuedOutput):
        return ppo_loss(outputs)
    return sft_loss(outputs) if isinstance(outputs, TiledOutput) else None
