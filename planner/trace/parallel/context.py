"""Attention over samples whose tokens several ranks share, as torch and DeepSpeed run it, on meta.

Ring: torch/distributed/tensor/experimental/_context_parallel/_attention.py itself, whose dispatcher takes the fused
attention operators apart into those of each block of keys and values, and the merging between them. Ulysses: what
deepspeed/runtime/sequence_parallel/ulysses_sp.py (UlyssesSPAttentionHF) does, in the same order.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol
from unittest import mock

import torch
import torch.distributed as dist

from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.trace.inputs.batch import IGNORED_LABEL, TrainingBatch
from gpu_plan.planner.trace.inputs.known import MAX_ELEMENTS, KnownValues
from gpu_plan.planner.trace.kernels.attention import AttentionBackend, AttentionCall, run_backend
from gpu_plan.planner.trace.parallel.errors import CannotSplitError

_TOKENS, _HEADS = 2, 1
"""Dimensions of a query [batch, heads, sequence, head size]."""
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_ULYSSES = ("sdpa", "flash_attention_2")
"""Names under which transformers knows the attention that DeepSpeed's class wraps here."""


class RunsAttention(Protocol):
    """Runs a call of scaled dot-product attention by a backend."""

    def __call__(self, backend: AttentionBackend, call: AttentionCall) -> torch.Tensor: ...


@contextlib.contextmanager
def split_attention(model: torch.nn.Module, split: SequenceSplit, known: KnownValues) -> Iterator[RunsAttention]:
    """Within `ranks(split.degree, split.rank)`: attention over all ranks' tokens; gives what runs the fused calls.

    What is received of positions is in `known`."""
    if split.method == "ulysses":
        with _heads_for_tokens(split.degree, known):
            yield run_backend
        return
    with _without_masks(model), _ring(split) as runs:
        yield runs


@contextlib.contextmanager
def _without_masks(model: torch.nn.Module) -> Iterator[None]:
    """accelerate 1.15 big_modeling.py: _attach_context_parallel_hooks: what calls itself `self_attn` is told to be
    causal, whatever mask the model has made: it takes two pieces of a sequence for two packed samples."""

    def unmasked(_module: Any, args: Any, words: dict[str, Any]) -> Any:
        if "attention_mask" in words:
            words.update(attention_mask=None, is_causal=True)
        return args, words

    handles = [
        module.register_forward_pre_hook(unmasked, with_kwargs=True, prepend=True)
        for name, module in model.named_modules()
        if name.endswith("self_attn")
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _ring(split: SequenceSplit) -> Iterator[RunsAttention]:
    """torch's `context_parallel` around the step, its buffers already cut (_attention.py: context_parallel)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    mesh = init_device_mesh("cpu", (split.degree,), mesh_dim_names=("cp",))
    shares = ring._ContextParallel(seq_dim=_TOKENS, attention_type=ring._ContextParallel.AttentionType.SDPA)

    def runs(backend: AttentionBackend, call: AttentionCall) -> torch.Tensor:
        if backend is AttentionBackend.MATH:
            raise CannotSplitError("no fused attention kernel of this GPU takes the model's heads and type for a ring")
        if not call.causal or call.mask is not None:
            raise CannotSplitError("attention that is not causal, or has a mask, is not shared out by torch's ring")
        (query, key, value), _ = shares.sdpa_input_fn(None, (call.query, call.key, call.value), {}, mesh)
        out = run_backend(backend, replace(call, query=query, key=key, value=value))
        local: torch.Tensor = shares.sdpa_output_fn(None, (), out, mesh)
        return local

    before = ring._cp_options.rotate_method
    ring.set_rotate_method(split.rotation)
    ring._enable_cp_dtensor_dispatcher()
    try:
        yield runs
    finally:
        ring._disable_cp_dtensor_dispatcher()
        ring._cp_options.rotate_method = before


class _AllToAll(torch.autograd.Function):
    """deepspeed/sequence/layer.py: _dim_zero_all_to_all: the first dimension is the ranks'."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return _exchanged(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return _exchanged(gradients[0].contiguous())


def _exchanged(value: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(value)
    dist.all_to_all_single(received, value)
    return received


@contextlib.contextmanager
def _heads_for_tokens(ranks: int, known_values: KnownValues) -> Iterator[None]:
    """transformers' attention functions wrapped as UlyssesSPAttentionHF.register_with_transformers wraps them."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as known

    with contextlib.ExitStack() as stack:
        for name in _ULYSSES:
            mapping = known._global_mapping
            stack.enter_context(mock.patch.dict(mapping, {name: _ulysses(mapping[name], ranks, known_values)}))
        yield


def _ulysses(attention: Callable[..., Any], ranks: int, known: KnownValues) -> Callable[..., Any]:
    """UlyssesSPAttentionHF.forward around `attention`; queries, keys, values [batch, heads, own tokens, head size]."""

    def forward(module: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **words: Any) -> Any:
        _check_shapes(module, query, key, value, words, ranks)
        gathered = [torch.empty_like(words["position_ids"]) for _ in range(ranks)]
        dist.all_gather(gathered, words["position_ids"])
        words["position_ids"] = torch.cat(gathered, dim=1)
        _know_positions(known, words["position_ids"])
        # All three are exchanged before the first is laid out for the kernel; what was given lives on in the caller.
        queries, keys, values = (_whole_sequence(one.permute(2, 0, 1, 3), ranks) for one in (query, key, value))
        queries = queries.permute(1, 2, 0, 3).contiguous()
        keys = keys.permute(1, 2, 0, 3).contiguous()
        values = values.permute(1, 2, 0, 3).contiguous()
        groups = {"num_key_value_groups": queries.shape[_HEADS] // keys.shape[_HEADS]}
        # There for good, here for the call: the same model is traced with whole samples too.
        with mock.patch.multiple(module, **groups) if ranks > key.shape[_HEADS] else contextlib.nullcontext():
            out, weights = attention(module, queries, keys, values, None, *args, **words)
        out = out.transpose(0, 1)
        return _own_tokens(out.reshape(*out.shape[:2], -1), ranks), weights

    return forward


def _know_positions(known: KnownValues, positions: torch.Tensor) -> None:
    """Of samples [batch, tokens] that are not packed: what all ranks' pieces are together."""
    if positions.numel() <= MAX_ELEMENTS:
        known.put(positions, torch.arange(positions.shape[1], device="cpu").expand(positions.shape).contiguous())


def _whole_sequence(value: torch.Tensor, ranks: int) -> torch.Tensor:
    """_combine_local_sequences: [own tokens, batch, heads, size] to [tokens, batch, own heads, size]."""
    tokens, batch, heads, size = value.shape
    if ranks > heads:
        value, heads = value.repeat_interleave(ranks // heads, dim=2), ranks
    value = value.reshape(tokens, batch, ranks, heads // ranks, size).permute(2, 0, 1, 3, 4).contiguous()
    out: torch.Tensor = _AllToAll.apply(value)
    return out.reshape(ranks * tokens, *out.shape[2:]).contiguous()


def _own_tokens(value: torch.Tensor, ranks: int) -> torch.Tensor:
    """_partition_global_sequence: [tokens, batch, own width] to [batch, own tokens, width]."""
    tokens, batch, width = value.shape
    value = value.reshape(ranks, tokens // ranks, batch, width).contiguous()
    out: torch.Tensor = _AllToAll.apply(value)
    out = out.permute(1, 2, 0, 3)
    return out.reshape(*out.shape[:2], -1).contiguous().transpose(0, 1)


def _check_shapes(module: Any, query: Any, key: Any, value: Any, words: dict[str, Any], ranks: int) -> None:
    """What UlyssesSPAttentionHF's constructor and its forward refuse."""
    name = type(module).__name__
    if "position_ids" not in words:
        raise CannotSplitError(f"{name} is not told its positions, which DeepSpeed's Ulysses needs in every layer")
    if key.shape != value.shape:
        raise CannotSplitError(f"{name} has keys and values of different sizes, which DeepSpeed's Ulysses refuses")
    heads, shared = query.shape[_HEADS], key.shape[_HEADS]
    if heads % ranks:
        raise CannotSplitError(f"{name} has {heads} attention heads, which {ranks} GPUs do not divide")
    if shared % ranks and ranks % shared:
        raise CannotSplitError(
            f"{name} has {shared} key-value heads, which do not go into {ranks} GPUs, nor they into them"
        )


def refuse_model(model: Any, split: SequenceSplit, attention: str) -> None:
    """CannotSplitError, in one line, for a class that the engines do not split by tokens.

    accelerate 1.15 big_modeling.py: _attach_context_parallel_hooks,
    _refuse_recurrent_layers_under_sequence_parallelism.
    """
    name = type(model).__name__
    config = getattr(model, "config", None)
    if config is None or not name.endswith(_CAUSAL) or getattr(config, "is_encoder_decoder", False):
        raise CannotSplitError(f"{name} is no causal language model of transformers, whose tokens alone are shared out")
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention"] if getattr(text, "sliding_window", None) else []
    other = sorted({kind for kind in kinds if kind != "full_attention"})
    if not getattr(text, "num_attention_heads", None) or any(
        _carries_state(kind) for kind in (*other, *_classes(model))
    ):
        raise CannotSplitError(f"{name} has layers that carry a state along the sequence, which ranks would begin anew")
    windows_kept = split.method == "ulysses" and attention == "flash" and set(other) <= {"sliding_attention"}
    if other and not windows_kept:
        raise CannotSplitError(
            f"{name} has layers of {' and '.join(other)}, whose masks are dropped where tokens are shared out:"
            " only full causal attention is split"
        )


_RECURRENT = ("mamba", "linear_attention", "recurrent", "rwkv", "deltanet", "ssm", "xlstm", "hyena", "conv")


def _carries_state(name: str) -> bool:
    """Whether a kind of layer, or a class of modules, goes along the sequence token by token."""
    return any(word in name.lower() for word in _RECURRENT)


def _classes(model: Any) -> set[str]:
    """Of its modules, but for GPT-2's linear layers, which are called Conv1D."""
    return {type(module).__name__ for module in model.modules()} - {"Conv1D"}


def shared_out(batch: TrainingBatch, split: SequenceSplit, length: int) -> TrainingBatch:
    """Of a rank's own tokens: their positions, and labels that were moved on before the sequence was cut.

    Ring: buffers are cut in place, so that each keeps the storage of the whole sequence (_attention.py:
    context_parallel, resize_); all four are transformers' own (trainer.py: _prepare_context_parallel_inputs).
    Ulysses: the cut tensors alone go to the device, and labels are the moved ones (ulysses_sp.py:
    UlyssesSPDataLoaderAdapter.refill; integrations/deepspeed.py: deepspeed_sp_compute_loss).
    """
    tokens, values = dict(batch.tensors), dict(batch.values)
    ids = tokens.get("input_ids")
    if ids is None or "labels" not in tokens or set(tokens) != {"input_ids", "labels"}:
        raise CannotSplitError("inputs beside tokens and labels are not shared out among ranks")
    samples, own = ids.shape
    pieces = [torch.arange(one.start, one.stop, device="cpu") for one in split.positions(length)]
    values["position_ids"] = torch.cat(pieces).expand(samples, -1).contiguous()
    if samples * own > MAX_ELEMENTS:
        del values["position_ids"]
    if "labels" in values:
        values["shift_labels"] = _moved(values["labels"])
    tokens["position_ids"] = torch.empty(samples, own, dtype=torch.int64, device="meta")
    tokens["shift_labels"] = torch.empty_like(tokens["position_ids"])
    if split.method == "ulysses":
        tokens["labels"] = tokens["shift_labels"]
        values.pop("labels", None)
    else:
        whole = {name: torch.empty(samples, length, dtype=torch.int64, device="meta") for name in tokens}
        tokens = {name: tensor.resize_(samples, own) for name, tensor in whole.items()}
    return replace(batch, tensors=tokens, values=values)


def _moved(labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(labels, (0, 1), value=IGNORED_LABEL)[:, 1:].contiguous()
