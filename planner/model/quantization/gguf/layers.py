"""Weights left in GGUF blocks on the meta device, as transformers 5.23 leaves them.

integrations/gguf/utils.py: GgufLinear, GgufEmbedding and GgufExperts; integrations/gguf/kernels.py.
"""

import torch
from torch import nn

from gpu_plan.planner.model.quantization.gguf.file import GgufTensor
from gpu_plan.planner.model.quantization.layers.base import StoredLinear, empty, entry, packed_mm
from gpu_plan.planner.model.quantization.scheme import Target
from gpu_plan.planner.model.source.headers import StoredTensor

FEW_ROWS = 8
"""kernels.py: MAX_GEMV_ROWS: up to so many rows are multiplied with the blocks themselves."""
CHUNK = 64 << 20
"""kernels.py: DEQUANT_CHUNK_ELEMS: elements unpacked at a time."""
KERNEL = "ggml-org/ggml-quantization through transformers integrations/gguf/utils.py: GgufLinear"


def blocks_of(tensor: GgufTensor) -> nn.Parameter:
    """A tensor's blocks as bytes, [..., bytes of a row]."""
    rows = tensor.numel // tensor.shape[-1]
    shape = (*tensor.shape[:-1], tensor.bytes // rows)
    return nn.Parameter(empty(shape, torch.uint8), requires_grad=False)


class GgufLinearMeta(StoredLinear):
    """A linear layer in blocks."""

    kernel = KERNEL

    def __init__(self, linear: nn.Module, target: Target, tensor: GgufTensor, weight: nn.Parameter | None) -> None:
        super().__init__(linear, target)
        self.weight = blocks_of(tensor) if weight is None else weight

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """GgufLinear.forward: fp32 out of the blocks for few rows, else chunk after chunk of unpacked rows."""
        rows = x.reshape(-1, self.in_features)
        if rows.shape[0] <= FEW_ROWS:
            out = packed_mm(rows, [self.weight], self.out_features, torch.float32)
        else:
            out = self._unpacked(rows)
        if self.bias is not None:
            out = out + self.bias
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def _unpacked(self, rows: torch.Tensor) -> torch.Tensor:
        """GgufLinear._unpack_matmul."""
        step = max(1, CHUNK // self.in_features)
        out = empty((rows.shape[0], self.out_features), rows.dtype)
        for start in range(0, self.out_features, step):
            chunk = empty((min(step, self.out_features - start), self.in_features), rows.dtype)
            out[:, start : start + step] = rows @ chunk.T
            del chunk
        return out

    def checkpoint(self) -> dict[str, StoredTensor]:
        """The blocks as bytes."""
        return {"weight": entry(self.weight), **self.bias_entry()}


class GgufEmbeddingMeta(nn.Module):
    """An embedding in blocks: the rows asked for are unpacked."""

    is_quantised = True

    def __init__(self, embedding: nn.Embedding, tensor: GgufTensor) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.compute_dtype = embedding.weight.dtype
        self.weight = blocks_of(tensor)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[...] to [..., embedding_dim]."""
        return input_ids.new_empty((*input_ids.shape, self.embedding_dim), dtype=self.compute_dtype)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """The blocks as bytes."""
        return {"weight": entry(self.weight)}


class GgufExpertsMeta(nn.Module):
    """One layer's experts in blocks."""

    is_quantised = True

    def __init__(self, experts: nn.Module, parts: dict[str, list[GgufTensor]]) -> None:
        super().__init__()
        self.act_fn = experts.act_fn
        down = parts["down_proj"][0]
        self.num_experts, self.hidden_dim, self.intermediate_dim = down.shape
        for name, tensors in parts.items():
            blocks = [blocks_of(tensor) for tensor in tensors]
            rows = sum(tensor.shape[1] for tensor in tensors)
            packed = empty((self.num_experts, rows, blocks[0].shape[-1]), torch.uint8)
            self.register_parameter(name, nn.Parameter(packed, requires_grad=False))

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """GgufExperts.forward: one row for every token and expert, in fp32."""
        rows = hidden_states.unsqueeze(1).expand(-1, top_k_index.shape[-1], -1)
        both = packed_mm(rows, [self.gate_up_proj], 2 * self.intermediate_dim, torch.float32)
        gate, up = both.chunk(2, dim=-1)
        current = self.act_fn(gate) * up
        routed = packed_mm(current, [self.down_proj], self.hidden_dim, torch.float32)
        return (routed * top_k_weights.unsqueeze(-1)).sum(dim=1).to(hidden_states.dtype)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """The blocks as bytes."""
        return {name: entry(parameter) for name, parameter in self.named_parameters(recurse=False)}
