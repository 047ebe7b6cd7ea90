"""Checkpoints of models that are spread over ranks: torch's distributed ones, which any other degrees read.

Accelerate would write the first rank's part alone, and transformers 5.23 refuses to (trainer.py: Trainer.__init__:
"Resuming is not supported for models sharded at load time"), though it has all that it takes (distributed/
checkpoint.py: save_optimizer_distributed names parameters, so that neither degrees nor groups matter). What else
belongs to a checkpoint, schedules, random states, samplers, stays as both write it.
"""

import functools
from pathlib import Path
from typing import Any

MODEL, OPTIMIZER = "spread_model_{}", "spread_optimizer_{}"
"""Folders of a checkpoint, by the model's and the optimizer's number."""
_TRAINER_SCHEDULER = "scheduler.pt"


def is_spread(model: Any) -> bool:
    """Whether the model, or what is wrapped around it, is spread over ranks, by transformers or in stages."""
    marks = ("_mesh_manager", "_pipeline")
    return any(getattr(module, mark, None) is not None for module in model.modules() for mark in marks)


def stages_of(model: Any) -> Any:
    """What runs a model in stages (`piped.run.PipedModel`); None where nothing does."""
    found = (getattr(module, "_pipeline", None) for module in model.modules())
    return next((each for each in found if each is not None), None)


def holds_spread(folder: Path) -> bool:
    """Whether a folder is a checkpoint as it is saved here."""
    return (folder / MODEL.format(0)).is_dir()


def save(folder: Path, models: list[Any], optimizers: list[Any]) -> None:
    """Models and optimizers of all ranks, which all call it. RuntimeError where which belongs to which is not known."""
    from transformers.distributed.checkpoint import _save_model_checkpoint_distributed, save_optimizer_distributed

    for number, model in enumerate(models):
        _save_model_checkpoint_distributed(model, folder / MODEL.format(number))
    for number, (model, optimizer) in enumerate(_paired(models, optimizers)):
        save_optimizer_distributed(model, optimizer, str(folder / OPTIMIZER.format(number)))


def load(folder: Path, models: list[Any], optimizers: list[Any]) -> None:
    """Into models and optimizers of any degrees, those of one process too."""
    from transformers.distributed.checkpoint import _load_model_checkpoint_distributed, load_optimizer_distributed

    for number, model in enumerate(models):
        _load_model_checkpoint_distributed(model, folder / MODEL.format(number))
    for number, (model, optimizer) in enumerate(_paired(models, optimizers)):
        load_optimizer_distributed(model, optimizer, str(folder / OPTIMIZER.format(number)))


def _paired(models: list[Any], optimizers: list[Any]) -> list[tuple[Any, Any]]:
    """Each optimizer of torch's with the model that it steps."""
    inner = [getattr(each, "optimizer", each) for each in optimizers]
    if len(models) == 1:
        return [(models[0], each) for each in inner]
    if len(models) != len(inner):
        raise RuntimeError(f"{len(inner)} optimizers of {len(models)} models: which steps which is not known")
    return list(zip(models, inner, strict=True))


def through_accelerate(module: Any) -> None:
    """After `accelerate.accelerator` has been imported."""
    kind = module.Accelerator
    kind.save_state = _save_state(kind.save_state)
    kind.load_state = _load_state(kind.load_state)
    kind.get_state_dict = _get_state_dict(kind.get_state_dict)


def _save_state(original: Any) -> Any:
    @functools.wraps(original)
    def save_state(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(is_spread(model) for model in self._models):
            return original(self, *args, **kwargs)
        models, optimizers = self._models, self._optimizers
        self._models, self._optimizers = [], []
        try:
            folder = original(self, *args, **kwargs)
        finally:
            self._models, self._optimizers = models, optimizers
        save(Path(folder), models, optimizers)
        return folder

    return save_state


def _load_state(original: Any) -> Any:
    @functools.wraps(original)
    def load_state(self: Any, input_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        folder = _latest(self) if input_dir is None else Path(input_dir)
        if folder is None or not holds_spread(folder):
            return original(self, input_dir, *args, **kwargs)
        models, optimizers, schedulers = self._models, self._optimizers, self._schedulers
        self._models, self._optimizers, self._schedulers = [], [], []
        try:
            found = original(self, input_dir, *args, **kwargs)
        finally:
            self._models, self._optimizers, self._schedulers = models, optimizers, schedulers
        load(folder, models, optimizers)
        for number, scheduler in enumerate(schedulers):
            load_schedule(folder / (f"scheduler_{number}.bin" if number else "scheduler.bin"), scheduler)
        return found

    return load_state


def _latest(accelerator: Any) -> Path | None:
    """The folder that an Accelerator loads by itself: the last one that it has numbered."""
    if not accelerator.project_configuration.automatic_checkpoint_naming:
        return None
    numbered = [path for path in Path(accelerator.project_dir, "checkpoints").glob("checkpoint_*") if path.is_dir()]
    return max(numbered, key=lambda path: int(path.name.rpartition("_")[2]), default=None)


def _get_state_dict(original: Any) -> Any:
    """The whole weights, on the first rank's host: `save_model` writes them."""

    @functools.wraps(original)
    def get_state_dict(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_spread(model):
            return original(self, model, *args, **kwargs)
        stages = stages_of(model)
        if stages is not None:
            return stages.whole_weights()
        from transformers.distributed.utils import gather_full_state_dict

        return gather_full_state_dict(model)

    return get_state_dict


def through_trainer(module: Any) -> None:
    """After `transformers.trainer` has been imported."""
    kind = module.Trainer
    kind.__init__ = _trainer_init(kind.__init__)
    kind.save_model = _trainer_saves_model(kind.save_model)
    kind._save_optimizer_and_scheduler = _trainer_saves(kind._save_optimizer_and_scheduler)
    kind._load_from_checkpoint = _trainer_loads_model(kind._load_from_checkpoint)
    kind._load_optimizer_and_scheduler = _trainer_loads_optimizer(kind._load_optimizer_and_scheduler)


def _trainer_init(original: Any) -> Any:
    """It raises where a spread model's optimizer is to be saved: that is done here."""

    @functools.wraps(original)
    def init(self: Any, model: Any = None, args: Any = None, *more: Any, **kwargs: Any) -> None:
        if args is None or args.save_only_model or not hasattr(model, "modules") or not is_spread(model):
            original(self, model, args, *more, **kwargs)
            return
        args.save_only_model = True
        try:
            original(self, model, args, *more, **kwargs)
        finally:
            args.save_only_model = False

    return init


def _trainer_saves_model(original: Any) -> Any:
    """Its first rank writes the model: in stages, what all ranks have put together before."""

    @functools.wraps(original)
    def save_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        stages = stages_of(self.model)
        if stages is None:
            return original(self, *args, **kwargs)
        with stages.gathered():
            return original(self, *args, **kwargs)

    return save_model


def _trainer_saves(original: Any) -> Any:
    @functools.wraps(original)
    def _save_optimizer_and_scheduler(self: Any, output_dir: str) -> None:
        if not is_spread(self.model):
            original(self, output_dir)
            return
        save(Path(output_dir), [self.model], [self.optimizer])
        if self.args.should_save:
            import torch

            torch.save(self.lr_scheduler.state_dict(), Path(output_dir, _TRAINER_SCHEDULER))

    return _save_optimizer_and_scheduler


def _trainer_loads_model(original: Any) -> Any:
    @functools.wraps(original)
    def _load_from_checkpoint(self: Any, resume_from_checkpoint: Any, model: Any = None) -> None:
        if not holds_spread(Path(resume_from_checkpoint)):
            original(self, resume_from_checkpoint, model)
            return
        load(Path(resume_from_checkpoint), [self.model if model is None else model], [])

    return _load_from_checkpoint


def _trainer_loads_optimizer(original: Any) -> Any:
    @functools.wraps(original)
    def _load_optimizer_and_scheduler(self: Any, checkpoint: Any) -> None:
        if checkpoint is None or not holds_spread(Path(checkpoint)):
            original(self, checkpoint)
            return
        load_optimizer(Path(checkpoint), self.model, self.optimizer)
        load_schedule(Path(checkpoint, _TRAINER_SCHEDULER), self.lr_scheduler)

    return _load_optimizer_and_scheduler


def load_schedule(path: Path, scheduler: Any) -> None:
    """Accelerate's or torch's, whose optimizer may have its groups cut along other meshes than the saved one."""
    import torch

    inner = getattr(scheduler, "scheduler", scheduler)
    inner.load_state_dict(fitted(torch.load(path, weights_only=True), len(inner.optimizer.param_groups)))


def fitted(state: dict[str, Any], groups: int) -> dict[str, Any]:
    """A schedule's state for another number of groups: what it keeps for each is as it was made, and functions are the
    first group's, since those that a mesh cuts apart share them."""
    found = dict(state)
    for name in ("base_lrs", "_last_lr"):
        if isinstance(found.get(name), list) and len(found[name]) != groups:
            del found[name]
    functions = found.get("lr_lambdas")
    if isinstance(functions, list) and len(functions) != groups:
        found["lr_lambdas"] = functions[:1] * groups
    return found


def load_optimizer(folder: Path, model: Any, optimizer: Any) -> None:
    """The first optimizer alone."""
    from transformers.distributed.checkpoint import load_optimizer_distributed

    inner = getattr(optimizer, "optimizer", optimizer)
    load_optimizer_distributed(model, inner, str(folder / OPTIMIZER.format(0)))
