"""Hooks on transformers' Trainer (and TRL's, which derive from it) and on Lightning's."""

import functools
from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.hooks.trackers import figures
from gpu_plan.executor.runner.observe.observer import Observer
from gpu_plan.executor.runner.recorder import Recorder


def install_trainer(module: Any, recorder: Recorder, observer: Callable[[], Observer | None]) -> None:
    """After `transformers.trainer` has been imported."""
    kind = module.Trainer
    init, log = kind.__init__, kind.log

    @functools.wraps(init)
    def trainer_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        watching = observer()
        if watching is not None:
            watching.stack("trainer")
            if getattr(self, "model", None) is not None:
                watching.verify(self.model)

    @functools.wraps(log)
    def trainer_log(self: Any, logs: dict[str, float], *args: Any, **kwargs: Any) -> Any:
        row = recorder.ledger.last
        if row is not None and "loss" in logs and getattr(self.args, "report_to", None):
            logs = {**logs, **figures(row)}
        return log(self, logs, *args, **kwargs)

    kind.__init__, kind.log = trainer_init, trainer_log


def install_arguments(module: Any, recorder: Recorder) -> None:
    """After `transformers.training_args` has been imported: the planned batch, for a script that makes its own."""
    options = recorder.options
    wanted = {
        "per_device_train_batch_size": options.micro_batch_size if options.rebatch else None,
        "gradient_accumulation_steps": options.accumulation_steps if options.reaccumulate else None,
    }
    kind = module.TrainingArguments
    post_init = kind.__post_init__

    @functools.wraps(post_init)
    def planned(self: Any) -> None:
        for name, value in wanted.items():
            before = getattr(self, name, None)
            if value is not None and before != value:
                setattr(self, name, value)
                recorder.note(f"the TrainingArguments' {name} was changed from {before} to {value}, as planned")
        post_init(self)

    kind.__post_init__ = planned


def install_lightning_cpu(module: Any, ranks: int) -> None:
    """After `lightning.pytorch.accelerators.cpu` has been imported: one device for each of this machine's `ranks`.

    Lightning counts one CPU (accelerators/cpu.py: auto_device_count), and a Trainer that names no `devices` would be a
    job of its own in each launched process, where on GPUs the processes are one job.
    """
    module.CPUAccelerator.auto_device_count = staticmethod(lambda: ranks)


def install_lightning(module: Any, observer: Callable[[], Observer | None]) -> None:
    """After `lightning.pytorch.trainer.trainer` (or pytorch_lightning's) has been imported."""
    kind = module.Trainer
    fit = kind.fit

    @functools.wraps(fit)
    def trainer_fit(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        watching = observer()
        if watching is not None:
            watching.stack("lightning")
            watching.verify(model)
        return fit(self, model, *args, **kwargs)

    kind.fit = trainer_fit
