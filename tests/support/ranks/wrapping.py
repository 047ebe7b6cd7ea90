"""Wraps a model for several ranks with the real code: torch's DDP and FSDP1, accelerate's own function for FSDP2."""

import contextlib
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MethodType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin, convert_outputs_to_fp32
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from peft.utils.other import fsdp_auto_wrap_policy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP1
from torch.distributed.fsdp import MixedPrecisionPolicy

from tests.support.ranks.case import RankCase


def wrap(model: nn.Module, case: RankCase) -> nn.Module:
    """The model as its strategy's own code wraps it."""
    if case.strategy == "ddp":
        # accelerate accelerator.py: prepare_model passes DistributedDataParallelKwargs, whose values are DDP's own.
        views = case.settings.get("ddp.gradient_as_bucket_view") == "true"
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
    if case.strategy in ("fsdp", "hsdp"):
        return _fully_shard(model, case)
    if case.strategy == "fsdp1":
        return _flatten_and_shard(model, case)
    if case.autocast:
        _under_autocast(model)
    return model


def _flatten_and_shard(model: nn.Module, case: RankCase) -> nn.Module:
    """torch's FSDP1 with the arguments of accelerate accelerator.py: prepare_model, and what its launcher passes."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=1,
        sharding_strategy="FULL_SHARD",
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=list(case.layers) or None,
        backward_prefetch="BACKWARD_PRE",
        use_orig_params=case.settings.get("fsdp.use_orig_params") != "false",
        cpu_ram_efficient_loading=False,
    )
    plugin.set_auto_wrap_policy(model)
    if case.lora_rank:
        # transformers distributed/fsdp.py: update_fsdp_plugin_peft, and what peft's documentation asks of other loops.
        plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)
    if case.precision.is_mixed:
        plugin.set_mixed_precision("bf16")
        reduced = getattr(torch, case.settings.get("dtype.reduce", "bfloat16"))
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, reduce_dtype=reduced)
    if case.autocast:
        _under_autocast(model)
    upcast = case.precision.is_mixed and not case.lora_rank
    if upcast:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
    wrapped = FSDP1(
        model,
        sharding_strategy=plugin.sharding_strategy,
        auto_wrap_policy=plugin.auto_wrap_policy,
        mixed_precision=plugin.mixed_precision_policy,
        backward_prefetch=plugin.backward_prefetch,
        forward_prefetch=plugin.forward_prefetch,
        use_orig_params=plugin.use_orig_params,
        limit_all_gathers=plugin.limit_all_gathers,
        device_id=torch.device("cpu"),
    )
    if upcast:
        _upcast(wrapped)
    return wrapped


def _upcast(model: FSDP1) -> None:
    """accelerate accelerator.py: prepare_model, of a model that was loaded in 16 bits."""
    for module in FSDP1.fsdp_modules(model):
        if module._has_params and module._flat_param.requires_grad:
            module._flat_param.data = module._flat_param.data.to(torch.float32)
            module._handle._orig_param_dtype = torch.float32


def _under_autocast(model: Any) -> None:
    """accelerate accelerator.py: prepare_model, native amp."""
    forward = torch.autocast("cpu", torch.bfloat16)(model.forward.__func__)
    model.forward = MethodType(convert_outputs_to_fp32(forward), model)


def _fully_shard(model: nn.Module, case: RankCase) -> nn.Module:
    """accelerate's `fsdp2_prepare_model`, given the few attributes of an Accelerator that it reads.

    A whole Accelerator would turn FSDP into DDP on a machine without GPU.
    """
    dtype = torch.bfloat16
    reduce = getattr(torch, case.settings.get("dtype.reduce", "bfloat16"))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce, output_dtype=dtype)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=list(case.layers) or None,
        cpu_ram_efficient_loading=False,
        reshard_after_forward=case.settings.get("fsdp.reshard_after_forward") != "false",
        mixed_precision_policy=policy if case.precision.is_mixed else None,
    )
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16" if case.precision.is_mixed else "no",
        is_main_process=False,
        device=torch.device("cpu"),
    )
    if case.strategy == "hsdp":
        # parallelism_config.py: fsdp_dim_names, with half of the ranks in each replica.
        names = ("dp_replicate", "dp_shard_cp")
        accelerator.torch_device_mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=names)
        accelerator.parallelism_config = SimpleNamespace(fsdp_dim_names=list(names))
    wrapped: nn.Module = fsdp2_prepare_model(accelerator, model)
    return wrapped


@contextlib.contextmanager
def _no_gradient_sync(model: Any) -> Any:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def without_sync(model: Any, case: RankCase) -> AbstractContextManager[Any]:
    """accelerate accelerator.py: no_sync, around all micro steps but the last."""
    if case.settings.get("fsdp.sync_each_batch") == "true":
        return contextlib.nullcontext()
    if case.strategy in ("fsdp", "hsdp", "fsdp_tp", "hsdp_tp", "fsdp_ep", "hsdp_ep"):
        return _no_gradient_sync(model)
    return model.no_sync() if case.strategy in ("ddp", "fsdp1") else contextlib.nullcontext()  # type: ignore[no-any-return]
