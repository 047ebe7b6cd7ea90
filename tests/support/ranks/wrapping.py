"""Wraps a model for several ranks with the real code: torch's DDP, and FSDP2 through accelerate's own function."""

import contextlib
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from tests.support.ranks.case import RankCase


def wrap(model: nn.Module, case: RankCase) -> nn.Module:
    """The model as its strategy's own code wraps it."""
    if case.strategy == "ddp":
        # accelerate accelerator.py: prepare_model passes DistributedDataParallelKwargs, whose values are DDP's own.
        return nn.parallel.DistributedDataParallel(model)
    if case.strategy == "fsdp":
        return _fully_shard(model, case)
    return model


def _fully_shard(model: nn.Module, case: RankCase) -> nn.Module:
    """accelerate's `fsdp2_prepare_model`, given the few attributes of an Accelerator that it reads.

    A whole Accelerator would turn FSDP into DDP on a machine without GPU.
    """
    dtype = torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype, output_dtype=dtype)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
        reshard_after_forward=True,
        mixed_precision_policy=policy if case.precision.is_mixed else None,
    )
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16" if case.precision.is_mixed else "no",
        is_main_process=False,
        device=torch.device("cpu"),
    )
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
    if case.strategy == "fsdp":
        return _no_gradient_sync(model)
    return model.no_sync() if case.strategy == "ddp" else contextlib.nullcontext()  # type: ignore[no-any-return]
