"""Runs a model's own `generate` on meta, greedily, under the recorder.

Everything between the user's call and the last token is transformers' own code: the mask and position ids, the cache,
which rows of logits are computed, the fp32 copy of the last row, the growing token ids.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.modules import module as nn_module

from gpu_plan.planner.model.build.flash import flash_package, implementation_of, refuse_device
from gpu_plan.planner.model.build.lean.imports import dynamo_away, large_ones
from gpu_plan.planner.model.build.quiet_logs import quiet_logs
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.trace.folding.fold import folded
from gpu_plan.planner.trace.folding.units import Fold
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.kernels.scans.replace import fused_scans
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile, KernelProfile
from gpu_plan.planner.trace.parallel.tensor import local_tensor
from gpu_plan.planner.trace.recording.collection import no_collection, one_thread
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.functions import DeviceFunctions, autocast_visible, python_wrappers_open
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.recorder import Recorder
from gpu_plan.planner.workload.generation import CacheKind, CacheType

_CACHE_NAMES = ("past_key_values", "cache_params", "mems", "state", "past_buckets_states")
"""Where outputs keep what the next step reads (transformers generation/utils.py: ALL_CACHE_NAMES)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Arguments of `generate` with their values."""

    tensors: dict[str, torch.Tensor]
    """Meta tensors."""
    values: dict[str, torch.Tensor]
    """The same on the CPU."""


def prompt_of(model: Any, variant: GenerationVariant) -> Prompt:
    """Token ids of the variant's lengths; a decoder that has begun gets its tokens too."""
    values = {"input_ids": torch.full((variant.batch, variant.prompt), 1, dtype=torch.int64)}
    if variant.prefix:
        values["decoder_input_ids"] = torch.full((variant.batch, variant.prefix), 1, dtype=torch.int64)
    return Prompt(tensors={name: torch.empty_like(v, device="meta") for name, v in values.items()}, values=values)


def record_generation(
    model: Any,
    variant: GenerationVariant,
    profile: KernelProfile,
    folds: Sequence[Fold] = (),
    *,
    keeps_rules: bool = False,
) -> Recording:
    """One call of `generate`: `variant.steps` forward passes of the model, less the blocks that `folds` leave out.
    `keeps_rules` as in `Recorder`.

    The root module's ENTER events part them. Whatever the model raises goes through.
    """
    there = large_ones()
    with dynamo_away():
        recording = _recorded(model, variant, profile, folds, keeps_rules)
    return recording if large_ones() == there else _recorded(model, variant, profile, folds, keeps_rules)


def _recorded(
    model: Any, variant: GenerationVariant, profile: KernelProfile, folds: Sequence[Fold], keeps_rules: bool
) -> Recording:
    prompt = prompt_of(model, variant)
    known = KnownValues()
    for name, value in prompt.values.items():
        known.put(prompt.tensors[name], value)
    tracker = ModuleTracker(model)
    recorder = Recorder(tracker, profile, HostReads(known))
    recorder.keeps_rules = keeps_rules
    recorder.know([*map(local_tensor, model.parameters()), *model.buffers(), *prompt.tensors.values()])
    with contextlib.ExitStack() as stack:
        quiet = (no_collection(), one_thread(), quiet_logs())
        for context in (*quiet, python_wrappers_open(), autocast_visible(None)):
            stack.enter_context(context)
        stack.enter_context(folded(model, folds, lambda: len(recorder.raw.operators)))
        for entered in (remember_literals(known), tracker, recorder, _marked_caches(model, recorder)):
            stack.enter_context(entered)
        if (flash := implementation_of(model)) is not None:
            refuse_device(flash, getattr(profile, "capability", None))
            stack.enter_context(flash_package(flash))
        stack.enter_context(DeviceFunctions(profile, None, False))
        assumed = stack.enter_context(fused_scans(model)) if profile.fused_scans else []
        if isinstance(profile, CpuProfile):
            stack.enter_context(_as_on_cpu(model))
        # What `generate` finds itself where it is not told (no rank waits for others'), for which it imports FSDP.
        options = {"generation_config": generation_config(model, variant), "synced_gpus": False}
        tokens = model.generate(**prompt.tensors, **options)
    raw = recorder.finish()
    del tokens
    known.forget()
    return Recording(
        micro_batch=variant.batch,
        raw=raw,
        inputs=tuple((name, tensor.untyped_storage().nbytes()) for name, tensor in prompt.tensors.items()),
        tokens=variant.batch * (variant.prompt + variant.prefix),
        notes=tuple(assumed),
    )


def generation_config(model: Any, variant: GenerationVariant) -> Any:
    """Greedy decoding of `variant.steps` tokens, none of which ends a sample."""
    from transformers import GenerationConfig

    options: dict[str, Any] = {}
    if variant.cache is CacheKind.STATIC:
        options = {"cache_implementation": "static", "max_cache_len": variant.cache_length}
    if variant.kv_dtype is CacheType.FP8:
        options = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    own = getattr(model, "generation_config", None)
    start = getattr(own, "decoder_start_token_id", None)
    config = GenerationConfig(
        max_new_tokens=variant.steps,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        disable_compile=True,
        pad_token_id=0,
        bos_token_id=getattr(own, "bos_token_id", None),
        decoder_start_token_id=0 if start is None else start,
        **options,
    )
    if variant.chunks:
        # torch.split takes a list as well as one size (generation/utils.py: GenerationMixin._prefill).
        config.prefill_chunk_size = list(variant.chunks)
    # What the model's own generation config says beyond this (beams, forced tokens) is not what is planned.
    model.generation_config = GenerationConfig(pad_token_id=0, decoder_start_token_id=config.decoder_start_token_id)
    return config


def prepare_for_generation(model: Any) -> None:
    """Evaluation mode, and the cache that building for training had switched off."""
    model.eval()
    model.requires_grad_(False)
    config = model.config
    for part in (config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", {}))):
        if hasattr(part, "use_cache"):
            part.use_cache = True


def cached_tensors(outputs: Any) -> Iterator[torch.Tensor]:
    """Tensors of the caches that a model's outputs hold."""
    for name in _CACHE_NAMES:
        cache = outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
        if cache is not None:
            yield from _tensors(cache, set())


def _tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Tensors anywhere inside a cache: its layers, their tuples and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if id(value) in seen or isinstance(value, (str, int, float, type(None), nn.Module)):
        return
    seen.add(id(value))
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, (list, tuple, set)):
        inner = value
    elif type(value).__module__.startswith("transformers") and hasattr(value, "__dict__"):
        inner = [part for name, part in vars(value).items() if "config" not in name]
    for part in inner:
        yield from _tensors(part, seen)


@contextlib.contextmanager
def _marked_caches(model: Any, recorder: Recorder) -> Iterator[None]:
    """Within, what stands in a cache after a forward pass of `model` is known as such."""

    def mark(module: nn.Module, args: Any, output: Any) -> None:
        if module is model:
            recorder.categorise(cached_tensors(output), Category.KV_CACHE)

    handle = nn_module.register_module_forward_hook(mark)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _as_on_cpu(model: Any) -> Iterator[None]:
    """transformers switches the experts' implementation for decoding wherever the device is no CPU; meta is none."""
    with mock.patch.object(type(model), "_optimize_model_for_decode", return_value=contextlib.nullcontext()):
        yield
