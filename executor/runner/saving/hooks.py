"""Hooks on saving and loading of Accelerate, the Trainer and DeepSpeed: untouched scripts fulfil the protocol."""

import functools
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.manifest import DEEPSPEED_UNIVERSAL, REPLICATED, SPREAD, ManifestError, read_manifest
from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.observe import wrapping
from gpu_plan.executor.runner.observe.actual import Counts, layers, wrapping_of
from gpu_plan.executor.runner.parallel.checkpoints import is_spread
from gpu_plan.executor.runner.recorder import Recorder
from gpu_plan.executor.runner.saving.fits import check_fits
from gpu_plan.executor.runner.saving.loads import after_load, fills_optimizer, number_next, schedule_pace
from gpu_plan.executor.runner.saving.protocol import Facts, Saving, layout_of, resume_folder

_NUMBERED = re.compile(r"checkpoint_(\d+)")


def install(recorder: Recorder, imports: PostImport) -> None:
    """Begins to watch savings."""
    saving = Saving(recorder)
    saving.install()
    imports.when("accelerate.utils.fsdp_utils", _fsdp)
    imports.when("accelerate.accelerator", lambda module: _accelerate(module, saving, recorder))
    imports.when("transformers.trainer", lambda module: _trainer(module, saving, recorder))
    imports.when("deepspeed.runtime.engine", lambda module: _deepspeed(module))


def facts_of(
    accelerator: Any,
    stack: str,
    models: Sequence[Any],
    optimizers: Sequence[Any],
    *,
    step: int | None = None,
    resumable: bool = True,
) -> Facts:
    """What an Accelerator tells of what is saved."""
    layout, found = _spread(accelerator, models)
    one = layout == REPLICATED and len(models) == len(optimizers) == 1
    return Facts(
        stack=stack,
        layout=layout,
        strategy=wrapping.strategy_called(found) or found,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        schedule_pace=schedule_pace(accelerator),
        step=step,
        resumable=resumable,
        parameter_names=numbered_names(models[0], optimizers[0]) if one else (),
        model_class=_class_name(models[0]) if len(models) == 1 else "",
        parameters=_elements(models),
    )


def _spread(accelerator: Any, models: Sequence[Any]) -> tuple[str, str]:
    """The layout of its checkpoints, and what it wraps a model in. ValueError for a layout without a name here."""
    if any(is_spread(model) for model in models):
        return SPREAD, wrapping_of(models[0])
    kind = accelerator.distributed_type.value
    plugin = getattr(accelerator.state, "fsdp_plugin", None) if kind == "FSDP" else None
    state_dict = getattr(getattr(plugin, "state_dict_type", None), "name", None)
    return layout_of(kind, state_dict), _wrapping(accelerator, kind, plugin)


def _check_fits(accelerator: Any, models: Sequence[Any], folder: Any) -> None:
    """Raises CheckpointMismatch for a checkpoint that must be converted first."""
    layout, found = _spread(accelerator, models)
    check_fits(folder, layout=layout, strategy=wrapping.strategy_called(found), world_size=accelerator.num_processes)


def _class_name(model: Any) -> str:
    """`LlamaForCausalLM`, whatever is around it; FSDP2 gives a model a class of its own, named after its first one."""
    *_, inner = layers(model)
    return type(inner).__name__.removeprefix("FSDP")


def _elements(models: Sequence[Any]) -> int:
    counts = Counts()
    for model in models:
        counts.add(model)
    return counts.total


def numbered_names(model: Any, optimizer: Any) -> tuple[str, ...]:
    """Names of the optimizer's parameters in its own order; none where one belongs to no module of the model."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [names.get(id(each)) for group in optimizer.param_groups for each in group["params"]]
    known = [name.removeprefix("module.") for name in found if name is not None]
    return tuple(known) if len(known) == len(found) else ()


def _wrapping(accelerator: Any, kind: str, plugin: Any) -> str:
    if kind == "DEEPSPEED":
        return wrapping.deepspeed(accelerator.state.deepspeed_plugin.zero_stage)
    if kind == "FSDP":
        replicas = getattr(getattr(accelerator, "parallelism_config", None), "dp_replicate_size", 1)
        if replicas > 1:
            return wrapping.FSDP2_OVER_REPLICAS
        # Whatever FSDP1's sharding strategy is, its files hold flat shards.
        return wrapping.FSDP2 if plugin.fsdp_version == 2 else wrapping.fsdp1("FULL_SHARD")
    return wrapping.DDP if accelerator.num_processes > 1 else wrapping.NOTHING


def _accelerate(module: Any, saving: Saving, recorder: Recorder) -> None:
    kind = module.Accelerator
    save, load = kind.save_state, kind.load_state

    @functools.wraps(save)
    def save_state(self: Any, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        config = self.project_configuration
        numbered = bool(config.automatic_checkpoint_naming)
        if numbered:
            folder = Path(self.project_dir, "checkpoints", f"checkpoint_{self.save_iteration}")
            recorder.guard("a torn checkpoint", move_torn, folder)
        elif output_dir is None:
            return save(self, output_dir, *args, **kwargs)  # raises
        else:
            folder = Path(output_dir)
        limit = config.total_limit if numbered else None
        # A numbered folder must not exist before: accelerate would refuse it.
        with saving.around(
            folder, lambda: facts_of(self, "accelerate", self._models, self._optimizers), mark_before=not numbered
        ):
            try:
                if limit is not None:
                    config.total_limit = None
                    saving.deferred.append(functools.partial(rotate, folder.parent, limit))
                found = save(self, output_dir, *args, **kwargs)
            finally:
                config.total_limit = limit if numbered else config.total_limit
        return found

    @functools.wraps(load)
    def load_state(self: Any, input_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        given = resume_folder() if input_dir is None else input_dir
        if given is not None:
            recorder.guard("what is loaded", _check_fits, self, self._models, given)
        with recorder.ignoring_steps():
            found = load(self, given, *args, **kwargs)
        if given is not None:
            manifest = saving.loaded(Path(given))
            recorder.guard("going on after a checkpoint", number_next, self, Path(given))
            if manifest is not None:
                recorder.guard("going on after a checkpoint", after_load, self, manifest)
        return found

    kind.save_state, kind.load_state = save_state, load_state


def move_torn(folder: Path) -> None:
    """Moves a torn folder out of accelerate's way, which refuses to save where one stands. Raises OSError."""
    if not folder.is_dir():
        return
    try:
        read_manifest(folder)
    except ManifestError:
        aside = folder.parent.parent / "torn" / f"{folder.name}-{time.time_ns()}"
        aside.parent.mkdir(exist_ok=True)
        try:
            os.rename(folder, aside)
        except FileNotFoundError:  # another rank was faster
            return


def rotate(folder: Path, limit: int) -> None:
    """Deletes what is older than the newest `limit` complete checkpoints that accelerate has numbered in `folder`."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NUMBERED.fullmatch(path.name))}
    complete = []
    for number, path in found.items():
        try:
            read_manifest(path)
        except ManifestError:
            continue
        complete.append(number)
    kept = sorted(complete)[-max(limit, 1) :]
    for number, path in found.items():
        if kept and number < kept[0]:
            shutil.rmtree(path)


def _trainer(module: Any, saving: Saving, recorder: Recorder) -> None:
    kind = module.Trainer
    save, load, train = kind._save_checkpoint, kind._load_optimizer_and_scheduler, kind.train
    rotate_checkpoints = module.rotate_checkpoints
    begun: list[bool] = []

    @functools.wraps(save)
    def _save_checkpoint(self: Any, model: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
        step = int(self.state.global_step)
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{step}")
        whole = not self.args.save_only_model

        def facts() -> Facts:
            return facts_of(self.accelerator, "trainer", [self.model], [self.optimizer], step=step, resumable=whole)

        with saving.around(folder, facts):
            module.rotate_checkpoints = lambda *a, **k: saving.deferred.append(
                functools.partial(rotate_checkpoints, *a, **k)
            )
            try:
                return save(self, model, trial, *args, **kwargs)
            finally:
                module.rotate_checkpoints = rotate_checkpoints

    @functools.wraps(load)
    def _load_optimizer_and_scheduler(self: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.ignoring_steps():
            found = load(self, checkpoint, *args, **kwargs)
        if checkpoint is not None:
            saving.loaded(Path(checkpoint), int(self.state.global_step))
        return found

    @functools.wraps(train)
    def trainer_train(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        # The first training of the script goes on where the attempt before ended, though the script may not ask for it.
        if not begun and not resume_from_checkpoint:
            resume_from_checkpoint = resume_folder()
        begun.append(True)
        if resume_from_checkpoint:
            last = module.get_last_checkpoint
            found = last(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
            recorder.guard("what is loaded", _check_fits, self.accelerator, [self.model], found)
        return train(self, resume_from_checkpoint, *args, **kwargs)

    kind._save_checkpoint = _save_checkpoint
    kind._load_optimizer_and_scheduler = _load_optimizer_and_scheduler
    kind.train = trainer_train


def _fsdp(module: Any) -> None:
    """Before accelerate and the Trainer take the function from here."""
    module.load_fsdp_optimizer = fills_optimizer(module.load_fsdp_optimizer)


def _deepspeed(module: Any) -> None:
    """A universal checkpoint is read as one: DeepSpeed takes that from its configuration only."""
    engine = module.DeepSpeedEngine
    load = engine.load_checkpoint

    @functools.wraps(load)
    def load_checkpoint(self: Any, load_dir: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            universal = read_manifest(Path(load_dir)).layout == DEEPSPEED_UNIVERSAL
        except ManifestError:
            universal = False
        before = self._config.load_universal_checkpoint
        self._config.load_universal_checkpoint = before or universal
        try:
            return load(self, load_dir, *args, **kwargs)
        finally:
            self._config.load_universal_checkpoint = before

    engine.load_checkpoint = load_checkpoint
