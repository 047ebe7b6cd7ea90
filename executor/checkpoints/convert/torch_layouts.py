"""Between one whole model and optimizer and the shards of torch.distributed.checkpoint.

The files are those of accelerate (checkpointing.py: save_accelerator_state; utils/fsdp_utils.py: save_fsdp_model,
save_fsdp_optimizer) and of transformers' Trainer (_save_checkpoint). A replicated optimizer numbers parameters, a
sharded one names them.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.state_dict_saver import _save_state_dict

from gpu_plan.executor.checkpoints.manifest import MANIFEST_FILE, MARKER_PREFIX, Manifest
from gpu_plan.planner.errors import InputError

SHARDED_MODEL, SHARDED_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"
MODEL_FILE = "model.safetensors"
_OPTIMIZER_FILES = {"accelerate": "optimizer.bin", "trainer": "optimizer.pt"}


def replicated_to_dcp(source: Path, target: Path, manifest: Manifest, strategy: str) -> tuple[str, ...]:
    """For FSDP2. Raises InputError for a checkpoint of several models."""
    optimizer_file = _optimizer_file(manifest)
    model = _load_model(source)
    state = torch.load(source / optimizer_file, map_location="cpu", weights_only=True)
    _save(target / SHARDED_MODEL, {"model": model})
    _save(target / SHARDED_OPTIMIZER, {"optimizer": by_name(state, manifest.parameter_names)})
    # The Trainer reads configuration and weights of the folder itself too.
    dropped = {optimizer_file} if manifest.stack == "trainer" else {optimizer_file, MODEL_FILE}
    _copy_rest(source, target, dropped)
    return manifest.parameter_names


def dcp_to_replicated(source: Path, target: Path, manifest: Manifest, strategy: str) -> tuple[str, ...]:
    """From FSDP2, whose optimizer says the names that its numbers have from here on.

    Raises InputError for a checkpoint of several models.
    """
    optimizer_file = _optimizer_file(manifest)
    model = _load(source / SHARDED_MODEL)["model"]
    state = _load(source / SHARDED_OPTIMIZER)["optimizer"]
    _copy_rest(source, target, {SHARDED_MODEL, SHARDED_OPTIMIZER})
    if manifest.stack == "accelerate" or not any(target.glob("*.safetensors")):
        _save_model(target / MODEL_FILE, model)
    torch.save(by_number(state), target / optimizer_file)
    return tuple(name for group in state["param_groups"] for name in group["params"])


def by_name(state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """An optimizer's `state_dict()`, its parameters named as torch.distributed.checkpoint does.

    Raises InputError where the numbers and `names` do not match.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    if sorted(numbers) != list(range(len(names))):
        raise InputError(f"its optimizer has {len(numbers)} parameters, {len(names)} names were recorded")
    groups = [{**group, "params": [names[number] for number in group["params"]]} for group in state["param_groups"]]
    return {"state": {names[number]: value for number, value in state["state"].items()}, "param_groups": groups}


def by_number(state: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `by_name`: numbers in the order of the groups."""
    numbers: dict[str, int] = {}
    groups = []
    for group in state["param_groups"]:
        for name in group["params"]:
            numbers[name] = len(numbers)
        groups.append({**group, "params": [numbers[name] for name in group["params"]]})
    return {"state": {numbers[name]: value for name, value in state["state"].items()}, "param_groups": groups}


def _optimizer_file(manifest: Manifest) -> str:
    if any(name.startswith(("optimizer_1", "model_1.", "pytorch_model_fsdp_1")) for name in manifest.files):
        raise InputError("it holds several models or optimizers: only one of each can be converted")
    return _OPTIMIZER_FILES[manifest.stack]


def _load_model(source: Path) -> dict[str, torch.Tensor]:
    if not (source / MODEL_FILE).is_file():
        raise InputError(f"it has no {MODEL_FILE}: weights in other files are not converted")
    return dict(load_file(source / MODEL_FILE))


def _save_model(path: Path, model: Mapping[str, torch.Tensor]) -> None:
    save_file({name: value.contiguous().clone() for name, value in model.items()}, path, metadata={"format": "pt"})


def _load(folder: Path) -> dict[str, Any]:
    """As torch.distributed.checkpoint.format_utils.dcp_to_torch_save reads it, without a file in between."""
    found: dict[str, Any] = {}
    _load_state_dict(found, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return found


def _save(folder: Path, state: dict[str, Any]) -> None:
    """As torch.distributed.checkpoint.format_utils.torch_save_to_dcp."""
    _save_state_dict(state, storage_writer=FileSystemWriter(folder), no_dist=True)


def _copy_rest(source: Path, target: Path, dropped: set[str]) -> None:
    """Schedules, random states and whatever else."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if not path.is_file() or name.parts[0] in dropped or name.name == MANIFEST_FILE:
            continue
        if name.name.startswith(MARKER_PREFIX):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / name)
