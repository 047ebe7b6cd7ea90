"""FlashAttention-2 for the trace: transformers' own integration runs, the package's two functions stand in.

`flash_package` lets transformers (modeling_flash_attention_utils.py) find them, whether or not the package is there:
its kernels cannot run on meta. What they save and return follows Dao-AILab/flash-attention 2.x
flash_attn/flash_attn_interface.py (FlashAttnFunc, FlashAttnVarlenFunc); torch's `_flash_attention_forward` is the
same kernel with the same layout [batch, sequence, heads, head size] and the same autograd formula.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.quiet_imports import without_torchao

with without_torchao():
    from transformers import modeling_flash_attention_utils as installed
    from transformers import modeling_utils


IMPLEMENTATION = "flash_attention_2"
_LARGEST_HEAD = 256
_OLDEST = (8, 0)
_OLD_NAME = "_flash_attention_forward"
"""Modules of the older style (Falcon, GPT-J, GPT-Neo) import this name only where the package is."""


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor:
    """Attention over [batch, sequence, heads, head size], the result in the same shape.

    InputError for what the real kernel refuses: fp32 operands, heads larger than 256.
    """
    return _run(q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, causal, softmax_scale, window_size)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences laid end to end, [tokens, heads, head size]; errors as `flash_attn_func`."""
    longest = int(max_seqlen_q), int(max_seqlen_k)
    return _run(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, dropout_p, causal, softmax_scale, window_size)


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts_q: torch.Tensor | None,
    starts_k: torch.Tensor | None,
    longest_q: int,
    longest_k: int,
    dropout: float,
    causal: bool,
    scale: float | None,
    window: tuple[int, int],
) -> torch.Tensor:
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise InputError(f"flash attention computes in 16 bit only, not {q.dtype}: use a mixed or 16-bit precision")
    head_dim = q.shape[-1]
    if head_dim > _LARGEST_HEAD:
        raise InputError(f"flash attention takes heads of up to {_LARGEST_HEAD}, not {head_dim}: use --attention sdpa")
    missing = -head_dim % 8
    if missing:
        q, k, v = (F.pad(operand, [0, missing]) for operand in (q, k, v))
    q, k, v = (operand if operand.stride(-1) == 1 else operand.contiguous() for operand in (q, k, v))
    out: torch.Tensor = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        starts_q,
        starts_k,
        longest_q,
        longest_k,
        dropout,
        causal,
        False,
        scale=scale,
        window_size_left=None if window[0] < 0 else window[0],
        window_size_right=None if window[1] < 0 else window[1],
    )[0]
    return out[..., :head_dim] if missing else out


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Decoding with a cache; no training step calls it."""
    raise InputError("flash attention with a paged cache is not traced")


def uses_flash(model: Any) -> bool:
    """Whether a transformers model was built to call the package."""
    return getattr(getattr(model, "config", None), "_attn_implementation", None) == IMPLEMENTATION


def refuse_device(capability: tuple[int, int] | None) -> None:
    """InputError for devices that FlashAttention-2 is not built for (Dao-AILab/flash-attention README.md)."""
    if capability is None or capability < _OLDEST:
        raise InputError(
            "--attention flash needs a GPU of compute capability 8.0 (Ampere) or newer: use --attention sdpa"
        )


def refuse_flash(model_class: type[Any]) -> None:
    """InputError when a class takes other flash kernels than FlashAttention-2 (gpt-oss and its attention sinks)."""
    accepted = getattr(model_class, "_compatible_flash_implementations", None)
    if accepted is not None and IMPLEMENTATION not in accepted:
        raise InputError(
            f"{model_class.__name__} runs flash attention only as {', '.join(accepted)}, which is not traced: "
            "use --attention sdpa"
        )


@contextlib.contextmanager
def flash_package() -> Iterator[None]:
    """Within, transformers finds FlashAttention-2 installed, and its functions are those above."""
    functions = {
        "_loaded_implementation": IMPLEMENTATION,
        "_flash_fn": flash_attn_func,
        "_flash_varlen_fn": flash_attn_varlen_func,
        "_flash_with_kvcache_fn": flash_attn_with_kvcache,
        "_pad_fn": installed._pad_input,
        "_unpad_fn": installed._unpad_input,
        "_process_flash_kwargs_fn": installed._lazy_define_process_function(flash_attn_varlen_func),
    }
    present = {name: value for name, value in functions.items() if hasattr(installed, name)}
    with contextlib.ExitStack() as stack:
        for name, value in present.items():
            stack.enter_context(mock.patch.object(installed, name, value))
        for module in _modules_without_old_name():
            forward = installed._flash_attention_forward
            stack.enter_context(mock.patch.object(module, _OLD_NAME, forward, create=True))
        # It tells the user, through its own logger, that it casts what autocast left in fp32.
        stack.enter_context(mock.patch.object(logging.getLogger("transformers"), "level", logging.CRITICAL))
        yield


@contextlib.contextmanager
def flash_allowed() -> Iterator[None]:
    """Within, a class that supports FlashAttention-2 may be built with it on a machine without a GPU.

    transformers modeling_utils.py: _check_and_adjust_attn_implementation, _flash_attn_can_dispatch. A class that
    does not support it is still refused there.
    """
    matrix = modeling_utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX
    there = {**matrix[2], "general_availability_check": lambda: True}
    with (
        flash_package(),
        mock.patch.dict(matrix, {2: there}),
        mock.patch.object(modeling_utils.PreTrainedModel, "_flash_attn_import_error", _second_is_found()),
    ):
        yield


def _second_is_found() -> Any:
    """No import error for FlashAttention-2; other versions are looked for as ever."""
    original = modeling_utils.PreTrainedModel._flash_attn_import_error

    def check(model: Any, flash_attn_version: int, *args: Any, **kwargs: Any) -> None:
        if flash_attn_version != 2:
            original(model, flash_attn_version, *args, **kwargs)

    return check


def _modules_without_old_name() -> list[Any]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("transformers.models.")
        and ".modeling_" in name
        and "FlashAttention2" in "".join(vars(module))
        and not hasattr(module, _OLD_NAME)
    ]
