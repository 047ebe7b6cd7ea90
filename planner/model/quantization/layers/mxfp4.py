"""gpt-oss's MXFP4 experts on the meta device: transformers' own module, with the Triton kernels' allocations.

transformers 5.23 integrations/mxfp4.py: Mxfp4GptOssMLP and Mxfp4GptOssExperts; the kernels are triton-lang/triton
python/triton_kernels/matmul_ogs.py, as kernels-community/gpt-oss-triton-kernels publishes them.
"""

import torch
from torch import nn
from transformers.integrations.mxfp4 import Mxfp4GptOssExperts, Mxfp4GptOssMLP

from gpu_plan.planner.model.quantization.layers.base import empty, packed_mm
from gpu_plan.planner.model.source.headers import StoredTensor

SCALE_GROUP = 32
"""Inputs that share one byte of scale."""


class Mxfp4ExpertsMeta(Mxfp4GptOssExperts):
    """Two FP4 values to a byte; the scales stand in `PrecisionConfig`s, which are no parameters of the module."""

    is_quantised = True

    def hold_scales(self) -> None:
        """swizzle_mxfp4_convertops: one byte for every 32 inputs of each output."""
        for name in ("gate_up_proj", "down_proj"):
            experts, rows, half = getattr(self, name).shape
            scales = empty((experts, rows, 2 * half // SCALE_GROUP), torch.uint8)
            self.register_buffer(f"{name}_scales", scales, persistent=False)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """[tokens, hidden] to [tokens, hidden]; matmul_ogs writes a row for every route, then adds a token's rows up.

        matmul_ogs.py: init_allocation (the scattered product goes into a scratchpad of all routes), with SwiGLU inside
        the first product.
        """
        routes = top_k_index.numel()
        rows = hidden_states.unsqueeze(1).expand(-1, top_k_index.shape[-1], -1)
        gated = self._product(rows, "gate_up_proj", self.intermediate_size)  # SwiGLU halves it inside the kernel
        scattered = self._product(gated, "down_proj", self.hidden_size)
        out = torch.empty_like(hidden_states)
        assert scattered.shape[0] * scattered.shape[1] == routes
        return out

    def _product(self, rows: torch.Tensor, name: str, columns: int) -> torch.Tensor:
        stored = [getattr(self, name), getattr(self, f"{name}_scales"), getattr(self, f"{name}_bias")]
        return packed_mm(rows, stored, columns, rows.dtype, computed=stored[0].shape[1])

    def checkpoint(self) -> dict[str, StoredTensor]:
        """As published: blocks of 16 bytes, scales, and biases in 16 bit."""
        held: dict[str, StoredTensor] = {}
        for name in ("gate_up_proj", "down_proj"):
            experts, rows, half = getattr(self, name).shape
            blocks = 2 * half // SCALE_GROUP
            held[f"{name}_blocks"] = ((experts, rows, blocks, SCALE_GROUP // 2), "uint8")
            held[f"{name}_scales"] = ((experts, rows, blocks), "uint8")
            held[f"{name}_bias"] = ((experts, rows), "bfloat16")
        return held


class Mxfp4MlpMeta(Mxfp4GptOssMLP):
    """`Mxfp4GptOssMLP` with its routing in torch's operators: the Triton routing makes the same small tensors."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, sequence, hidden] to the same, and the router's logits."""
        rows = hidden_states.reshape(-1, self.router.hidden_dim)
        logits = nn.functional.linear(rows, self.router.weight, self.router.bias)
        scores, indices = torch.topk(logits, self.router.top_k, dim=-1)
        out = self.experts(rows, indices, torch.softmax(scores, dim=-1))
        return out.reshape(hidden_states.shape), logits


def replace(mlp: nn.Module, config: object) -> Mxfp4MlpMeta:
    """replace_with_mxfp4_linear for one `GptOssMLP`, without loading the kernels."""
    with torch.device("meta"):
        experts = Mxfp4ExpertsMeta(config)
        made = Mxfp4MlpMeta(mlp.router, experts)
    experts.hold_scales()
    return made
