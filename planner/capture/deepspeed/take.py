"""Puts the captured engine behind DeepSpeed's own names, once a script has imported it."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gpu_plan.planner.capture.deepspeed import config as configs
from gpu_plan.planner.capture.deepspeed import optimizers
from gpu_plan.planner.capture.deepspeed.engine import DeepSpeedEngine
from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.errors import InputError

if TYPE_CHECKING:
    from gpu_plan.planner.capture.request import EngineFacts

_COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "get_rank", "get_world_size", "is_initialized",
    "monitored_barrier", "new_group", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
)  # fmt: skip
"""Functions that deepspeed.comm shares with torch.distributed, which the capture answers already."""


class Engines:
    """What the script gave to `deepspeed.initialize`; `clip(norm)` is told what its engine clips to."""

    def __init__(self, world_size: int, imposed: bool, clip: Callable[[float], None]) -> None:
        self._world_size, self._imposed, self._clip = world_size, imposed, clip
        self.facts: EngineFacts | None = None
        """Of the engine that trains."""
        self.dtype: str | None = None
        """16-bit type in which that engine holds the parameters, beside fp32 masters."""

    def watch(self) -> None:
        """Takes DeepSpeed's names, now or when it is imported."""
        when_imported("deepspeed", self._take)
        when_imported("deepspeed.comm", _take_collectives)
        when_imported("deepspeed.comm.comm", _take_collectives)
        for home in ("deepspeed.ops.adam", "deepspeed.ops.adam.fused_adam", "deepspeed.ops.adam.cpu_adam"):
            when_imported(home, _take_optimizers)

    def _take(self, module: Any) -> None:
        module.initialize = self._initialize
        module.init_distributed = _init_distributed
        module.DeepSpeedEngine = DeepSpeedEngine
        module.zero.Init = module.zero.GatheredParameters = Nothing
        _take_collectives(module.comm)
        _take_optimizers(module.ops.adam)

    def _initialize(
        self,
        args: Any = None,
        model: nn.Module | None = None,
        optimizer: Any = None,
        model_parameters: Any = None,
        training_data: Any = None,
        lr_scheduler: Any = None,
        *_: Any,
        config: Any = None,
        config_params: Any = None,
        collate_fn: Any = None,
        **__: Any,
    ) -> tuple[Any, Any, Any, Any]:
        """deepspeed/__init__.py: initialize; engine, optimizer, loader and scheduler."""
        if model is None:
            raise InputError("deepspeed.initialize is given no model")
        if type(model).__name__ == "PipelineModule":
            raise InputError("DeepSpeed's PipelineModule splits the model over stages by itself: no plan is made of it")
        _init_distributed()
        given = config if config is not None else config_params
        given = getattr(args, "deepspeed_config", None) if given is None else given
        read = configs.read(given, self._world_size)
        if read.dtype is not None and not self._imposed:
            _cast(model, getattr(torch, read.dtype))
        optimizer = self._optimizer(read, optimizer, model, model_parameters)
        if optimizer is not None:
            self.facts, self.dtype = read.facts, read.dtype
        scheduler = lr_scheduler(optimizer) if callable(lr_scheduler) and optimizer is not None else lr_scheduler
        engine = DeepSpeedEngine(model, optimizer, read, scheduler, self._world_size, self._clip)
        return engine, optimizer, _loader(training_data, read.micro_batch, collate_fn), scheduler

    @staticmethod
    def _optimizer(read: configs.EngineConfig, given: Any, model: nn.Module, parameters: Any) -> Any:
        if given is not None and not isinstance(given, torch.optim.Optimizer) and callable(given):
            return given([one for one in model.parameters() if one.requires_grad])
        if given is not None or read.optimizer is None:
            return given
        kind, options = read.optimizer
        trained = list(parameters) if parameters is not None else list(model.parameters())
        trained = [one for one in trained if isinstance(one, dict) or one.requires_grad]
        return optimizers.named(kind, options, trained)


def _loader(data: Any, micro_batch: int, collate: Any) -> Any:
    if data is None:
        return None
    return torch.utils.data.DataLoader(data, batch_size=micro_batch, collate_fn=collate)


def _cast(model: nn.Module, dtype: torch.dtype) -> None:
    """runtime/engine.py: _configure_distributed_model: module.half() or module.bfloat16(), on the same parameters."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)


def _init_distributed(*_: Any, **__: Any) -> None:
    torch.distributed.init_process_group()


def _take_collectives(module: Any) -> None:
    for name in _COLLECTIVES:
        if hasattr(module, name) and hasattr(torch.distributed, name):
            setattr(module, name, getattr(torch.distributed, name))
    if hasattr(module, "init_distributed"):
        module.init_distributed = _init_distributed
    if hasattr(module, "get_local_rank"):
        module.get_local_rank = lambda: 0


def _take_optimizers(module: Any) -> None:
    for name in ("FusedAdam", "DeepSpeedCPUAdam"):
        if hasattr(module, name):
            setattr(module, name, getattr(optimizers, name))


class Nothing(contextlib.ContextDecorator):
    """Stands in for deepspeed.zero.Init and GatheredParameters: parameters are on meta already, and whole."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *exc: object) -> None: ...
