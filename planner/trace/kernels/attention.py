"""Which attention kernel runs, what it saves, and what it takes while it runs.

On meta, `scaled_dot_product_attention` falls apart into matrix products and a softmax whose S×S buffers no GPU
ever makes. Here it is sent to the operator that the device would choose; its saved tensors come from that
operator's own autograd formula, its temporaries from `attention_scratch`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from gpu_plan.planner.trace.rules import Ruled, SplitKeys
from gpu_plan.planner.units import round_up


class AttentionBackend(StrEnum):
    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    FLASH_CPU = "flash-cpu"
    MATH = "math"


_HALF = (torch.float16, torch.bfloat16)
_CUDNN_MAX_HEAD_DIM = 128
_FLASH_MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """Arguments of one `scaled_dot_product_attention`; shapes [batch, heads, sequence, head size]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool
    """Whether key and value may have fewer heads than the query."""

    @property
    def head_sizes(self) -> tuple[int, int, int]:
        return self.query.shape[-1], self.key.shape[-1], self.value.shape[-1]

    @property
    def broadcasts(self) -> bool:
        """Whether batch or heads of four-dimensional arguments differ, which no fused kernel takes.

        pytorch aten/src/ATen/native/transformers/sdp_utils_cpp.h: check_batch_size_and_num_heads_dense; heads may
        differ where the call says so (`enable_gqa`). Falcon's one key and value serve all queries without saying so.
        """
        tensors = (self.query, self.key, self.value)
        heads_differ = not self.grouped and len({tensor.shape[-3] for tensor in tensors}) > 1
        return heads_differ or len({tensor.shape[0] for tensor in tensors}) > 1

    @property
    def needs_gradient(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in (self.query, self.key, self.value))


def choose_cuda_backend(capability: tuple[int, int], call: AttentionCall) -> AttentionBackend:
    """The first kernel whose conditions hold, in torch's order of preference.

    pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: priority_order, check_prefer_cudnn_attention
    (cuDNN first on compute capability 9 and 10 with cuDNN above 9.15), can_use_cudnn_attention,
    can_use_flash_attention, can_use_mem_efficient_attention (grouped queries only in sources newer than 2.13).
    """
    if call.query.dim() != 4 or call.broadcasts:
        return AttentionBackend.MATH
    dtype = call.query.dtype
    half = dtype is torch.float16 or (dtype is torch.bfloat16 and capability >= (8, 0))
    if half and capability[0] in (9, 10) and _cudnn_takes(call):
        return AttentionBackend.CUDNN
    if half and capability >= (8, 0) and _flash_takes(capability, call):
        return AttentionBackend.FLASH
    if (half or dtype is torch.float32) and _efficient_takes(call, alignment=8 if half else 4):
        return AttentionBackend.EFFICIENT
    return AttentionBackend.MATH


def choose_cpu_backend(call: AttentionCall) -> AttentionBackend:
    """pytorch aten/src/ATen/native/transformers/sdp_utils_cpp.cpp: use_flash_attention_cpp."""
    plain = call.dropout == 0.0 and call.query.dim() == 4 and call.query.stride(-1) == 1 and not call.broadcasts
    return AttentionBackend.FLASH_CPU if plain and len(set(call.head_sizes)) == 1 else AttentionBackend.MATH


def _cudnn_takes(call: AttentionCall) -> bool:
    """check_attn_mask_shape (no gradient for a mask), check_cudnn_dropout, check_cudnn_tensor_shapes."""
    if call.mask is not None and call.mask.requires_grad:
        return False
    if (call.dropout * 16) % 1:
        return False
    sizes = call.head_sizes
    latent = sizes == (192, 192, 128)
    return latent or (max(sizes) <= _CUDNN_MAX_HEAD_DIM and sizes[0] % 8 == 0 and sizes[2] % 8 == 0)


def _flash_takes(capability: tuple[int, int], call: AttentionCall) -> bool:
    """check_for_attn_mask, check_head_dim_size_flash, check_flash_causal_non_square_seqlens and the sm86-89 limit."""
    size = call.head_sizes[0]
    if call.mask is not None or len(set(call.head_sizes)) > 1 or size > _FLASH_MAX_HEAD_DIM:
        return False
    if call.causal and call.query.shape[2] != call.key.shape[2]:
        return False
    small_shared_memory = (8, 6) <= capability <= (8, 9) or capability[0] == 12
    return not small_shared_memory or size <= 192 or (size > 224 and call.dropout == 0.0)


def _efficient_takes(call: AttentionCall, alignment: int) -> bool:
    """check_head_dim_size_mem_efficient; equal numbers of heads."""
    query, key, value = call.head_sizes
    if call.grouped and call.query.shape[1] != call.key.shape[1]:
        return False
    return query == key and query % alignment == 0 and value % alignment == 0


def run_backend(backend: AttentionBackend, call: AttentionCall) -> torch.Tensor:
    """Calls the chosen operator on meta tensors."""
    aten = torch.ops.aten
    q, k, v, scale = call.query, call.key, call.value, call.scale
    out: torch.Tensor
    if backend is AttentionBackend.FLASH:
        out = aten._scaled_dot_product_flash_attention(q, k, v, call.dropout, call.causal, scale=scale)[0]
        return out
    bias = _additive(call.mask, q)
    if backend is AttentionBackend.FLASH_CPU:
        out = aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, call.dropout, call.causal, attn_mask=bias, scale=scale
        )[0]
        return out
    if bias is not None:
        # attention.cpp: preprocess_mask.
        bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], bias.shape[-1])
    operator = (
        aten._scaled_dot_product_cudnn_attention
        if backend is AttentionBackend.CUDNN
        else aten._scaled_dot_product_efficient_attention
    )
    out = operator(q, k, v, bias, call.needs_gradient, call.dropout, call.causal, scale=scale)[0]
    return out


def _additive(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """A boolean mask becomes an additive one in the query's dtype, once per call.

    pytorch aten/src/ATen/native/transformers/attention.cpp: convert_boolean_attn_mask, pad_bias (the last
    dimension is padded to 16 elements when it is not a multiple).
    """
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.full_like(mask, 0.0, dtype=query.dtype)
    return mask


def _padded_head_dim(head_dim: int) -> int:
    """FlashAttention pads the head size to 32 up to 128, then to 64."""
    return round_up(head_dim, 32) if head_dim <= 128 else round_up(head_dim, 64)


def attention_scratch(operator: str, args: tuple[Any, ...], sm_count: int) -> list[int]:
    """Bytes of the temporaries of an attention operator, beside its outputs.

    Flash: pytorch aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: mha_bwd (softmax_d,
    dq_accum, expanded dk and dv under grouped queries), set_params_splitkv. Efficient: attention_backward.cu
    (delta and the fp32 workspace). cuDNN: cudnn-frontend scaled_dot_product_flash_attention.h,
    get_fe_workspace_size_node (its front-end part; the engine's own part is not public). The `_flash_attention`
    operators are the same kernels on [batch, sequence, heads, head size], or [tokens, heads, head size]; of
    `flash3_attention` see `_flash3_forward` and `_flash3_backward`.
    """
    if operator == "flash3_attention_forward":
        return _flash3_forward(args)
    if operator == "flash3_attention_backward":
        return _flash3_backward(args)
    if operator == "_scaled_dot_product_flash_attention":
        return _flash_forward(args[0], args[1], sm_count)
    if operator == "_scaled_dot_product_flash_attention_backward":
        return _flash_backward(args[1], args[2])
    if operator == "_flash_attention_forward":
        return _flash_forward(args[0].transpose(1, 2), args[1].transpose(1, 2), sm_count) if args[3] is None else []
    if operator == "_flash_attention_backward":
        if args[6] is None:
            return _flash_backward(args[1].transpose(1, 2), args[2].transpose(1, 2))
        return _flash_varlen_backward(args[1], args[2], args[6].numel() - 1)
    if operator == "_scaled_dot_product_cudnn_attention_backward":
        batch, heads, queries, head_dim = args[1].shape
        return [4 * batch * heads * queries * head_dim + 4 * batch * heads * queries]
    if operator == "_scaled_dot_product_efficient_attention_backward":
        batch, heads, queries, head_dim = args[1].shape
        delta = 4 * batch * heads * queries
        workspace = 4 * batch * heads * queries * head_dim if args[1].dtype in _HALF else 0
        return [delta, workspace] if workspace else [delta]
    return []


def _flash_forward(query: torch.Tensor, key: torch.Tensor, sm_count: int) -> list[int]:
    """Split-KV accumulators, made when too few blocks would fill the GPU."""
    return [taken for one in _split_keys(query, key, sm_count) if (taken := one.nbytes(0))]


def _split_keys(query: torch.Tensor, key: torch.Tensor, sm_count: int) -> list[Ruled]:
    batch, heads, queries, head_dim = query.shape
    if queries > SplitKeys.MOST_QUERIES:
        return []
    sizes = {"heads": heads, "queries": queries, "keys": key.shape[2], "sm_count": sm_count}
    return [Ruled(SplitKeys(width=width, **sizes), batch) for width in (_padded_head_dim(head_dim), 1)]


FLASH_FORWARD = ("_scaled_dot_product_flash_attention", "_flash_attention_forward")


def split_scratch(operator: str, args: tuple[Any, ...], sm_count: int) -> list[Ruled]:
    """What `attention_scratch` counts of flash attention's forward pass, by its rule."""
    if operator == FLASH_FORWARD[0]:
        return _split_keys(args[0], args[1], sm_count)
    return _split_keys(args[0].transpose(1, 2), args[1].transpose(1, 2), sm_count) if args[3] is None else []


def _flash_backward(query: torch.Tensor, key: torch.Tensor) -> list[int]:
    batch, heads, queries, head_dim = query.shape
    rows = round_up(queries, 128)
    scratch = [4 * batch * heads * rows, 4 * batch * rows * heads * _padded_head_dim(head_dim)]
    if key.shape[1] != heads:
        expanded = batch * key.shape[2] * heads * head_dim * query.element_size()
        scratch += [expanded, expanded]
    return scratch


def _flash3_forward(args: tuple[Any, ...]) -> list[int]:
    """huggingface/kernels-community vllm-flash-attn3/flash-attn/flash_api_stable.cpp: mha_fwd on Hopper, one split: the
    scheduler's counter, and one for every sequence that lies end to end."""
    starts, is_causal, is_local = args[3], args[5], args[6]
    if starts is not None:
        return [4 * starts.numel()]
    return [4] if is_causal or is_local else []


def _flash3_backward(args: tuple[Any, ...]) -> list[int]:
    """The same file: mha_bwd on Hopper: softmax_d, the log-sum-exp to base 2, dq in fp32, dk and dv in fp32 under
    grouped queries, and the counters of dq."""
    query, key, starts, is_causal, is_local = args[1], args[2], args[6], args[8], args[9]
    heads, head_dim = query.shape[-2:]
    rounded = next(size for size in (64, 96, 128, 192, 256) if head_dim <= size)
    rows_of_queries, rows_of_keys = _flash3_blocks(rounded, masked=is_causal or is_local)
    if starts is None:
        batch, tokens = query.shape[:2]
        queries, keys = (
            batch * round_up(operand.shape[1], rows)
            for operand, rows in ((query, rows_of_queries), (key, rows_of_keys))
        )
        longest = tokens
    else:
        batch = starts.numel() - 1
        queries = round_up(query.shape[0] + batch * rows_of_queries, rows_of_queries)
        keys = round_up(key.shape[0] + batch * rows_of_keys, rows_of_keys)
        longest = -(-query.shape[0] // batch)
    scratch = [4 * heads * queries, 4 * heads * queries, 4 * heads * queries * rounded]
    if key.shape[-2] != heads:
        expanded = 4 * key.shape[-2] * keys * rounded
        scratch += [expanded, expanded]
    return [*scratch, 4 * -(-longest // rows_of_queries) * batch * heads]


def _flash3_blocks(head_dim: int, *, masked: bool) -> tuple[int, int]:
    """Rows of queries and of keys that one block of backward takes, without a soft cap."""
    queries = {64: 128, 96: 64, 128: 64 if masked else 80}.get(head_dim, 64)
    return queries, 128 if head_dim <= 128 else 96 if head_dim <= 192 else 80


def _flash_varlen_backward(query: torch.Tensor, key: torch.Tensor, sequences: int) -> list[int]:
    """mha_varlen_bwd of the same file: rows are padded by 128 for every sequence."""
    tokens, heads, head_dim = query.shape
    rows = tokens + 128 * sequences
    scratch = [4 * heads * rows, 4 * rows * heads * _padded_head_dim(head_dim)]
    if key.shape[1] != heads:
        expanded = key.shape[0] * heads * head_dim * query.element_size()
        scratch += [expanded, expanded]
    return scratch
