"""Hooks on Accelerate: what is prepared, with which data, and the trackers that the script has."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.hooks.clipping import clipping
from gpu_plan.executor.runner.hooks.rebatch import Rebatch
from gpu_plan.executor.runner.hooks.trackers import Trackers
from gpu_plan.executor.runner.observe.observer import Observer
from gpu_plan.executor.runner.recorder import Recorder


def install(module: Any, recorder: Recorder, observer: Callable[[], Observer | None]) -> None:
    """After `accelerate.accelerator` has been imported."""
    kind = module.Accelerator
    rebatch = Rebatch(recorder)
    trackers = Trackers(recorder)
    kind.__init__ = _init(kind.__init__, recorder, observer, trackers)
    kind.prepare = _prepare(kind.prepare, recorder, observer)
    kind.prepare_data_loader = _prepare_data_loader(kind.prepare_data_loader, rebatch)
    kind.clip_grad_norm_ = clipping(kind.clip_grad_norm_, recorder, method=True)
    kind.end_training = _end_training(kind.end_training, trackers)


def _init(original: Any, recorder: Recorder, observer: Callable[[], Observer | None], trackers: Trackers) -> Any:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        wanted = recorder.options.data_loader
        if wanted and kwargs.get("dataloader_config") is None:
            configuration = recorder.guard("the data loader's configuration", _data_loader, dict(wanted))
            if configuration is not None:
                kwargs["dataloader_config"] = configuration
        original(self, *args, **kwargs)
        watching = observer()
        if watching is not None:
            watching.stack("accelerate")
        trackers.follow(self)

    return init


def _data_loader(fields: dict[str, object]) -> Any:
    return sys.modules["accelerate.utils"].DataLoaderConfiguration(**fields)


def _prepare(original: Any, recorder: Recorder, observer: Callable[[], Observer | None]) -> Any:
    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        watching = observer()
        torch = sys.modules.get("torch")
        if watching is not None and torch is not None:
            models = [each for each in args if isinstance(each, torch.nn.Module)]
            trained = [model for model in models if any(each.requires_grad for each in model.parameters())]
            given = [type(each).__name__ for each in args if isinstance(each, torch.optim.Optimizer)]
            if given:
                # Accelerate may put DeepSpeed's CPU Adam in its place, whatever it is (map_pytorch_optim_to_deepspeed).
                recorder.actual["optimizers_given"] = given
            watching.verify(*trained)
            if not _engine_checkpoints(self):
                for model in trained:
                    watching.enable_checkpointing(model)
        return original(self, *args, **kwargs)

    return prepare


def _engine_checkpoints(accelerator: Any) -> bool:
    """Whether Accelerate itself wraps the units in checkpoints (FullyShardedDataParallelPlugin)."""
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    return bool(getattr(plugin, "activation_checkpointing", False))


def _prepare_data_loader(original: Any, rebatch: Rebatch) -> Any:
    @functools.wraps(original)
    def prepare_data_loader(self: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, rebatch.rebuilt(data_loader), *args, **kwargs)

    return prepare_data_loader


def _end_training(original: Any, trackers: Trackers) -> Any:
    @functools.wraps(original)
    def end_training(self: Any, *args: Any, **kwargs: Any) -> Any:
        trackers.finish()
        return original(self, *args, **kwargs)

    return end_training
