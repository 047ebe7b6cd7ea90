"""DeepSpeed's universal checkpoint: a folder for each parameter, for any number of ranks; ZeRO-2's also for ZeRO-3."""

import argparse
import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.manifest import MANIFEST_FILE, MARKER_PREFIX, Manifest
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.strategy.known import traits_of

EXTRACT_WORKERS = 1
MERGE_WORKERS = 1
"""Processes that hold parameters in memory at the same time."""


def to_universal(source: Path, target: Path, manifest: Manifest, strategy: str) -> tuple[str, ...]:
    """By deepspeed/checkpoint/ds_to_universal.py; for a zero3 target what its loader looks for is added.

    Raises InputError where the folder is not laid out as accelerate or the Trainer lets DeepSpeed do it.
    """
    from deepspeed.checkpoint import ds_to_universal  # type: ignore[import-untyped]

    name = _tag(source)
    wanted = argparse.Namespace(
        input_folder=str(source / name),
        output_folder=str(target / name),
        num_extract_workers=EXTRACT_WORKERS,
        num_merge_workers=MERGE_WORKERS,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=not traits_of(manifest.strategy).shards_model,
    )
    (target / name).mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()):
        ds_to_universal.main(wanted)
    shutil.rmtree(target / name / "tmp", ignore_errors=True)
    if traits_of(strategy).shards_model and not traits_of(manifest.strategy).shards_model:
        _for_stage_3(source / name, target / name)
    _copy_rest(source, target, name)
    return manifest.parameter_names


def _tag(source: Path) -> str:
    """The folder of DeepSpeed's own files: `pytorch_model` from accelerate, `global_stepN` from the Trainer."""
    found = sorted(path.parent.name for path in source.glob("*/*model_states.pt"))
    if not found or len(set(found)) > 1:
        raise InputError(f"{source} holds {len(set(found))} DeepSpeed checkpoints: one can be converted")
    return found[0]


def _for_stage_3(source: Path, target: Path) -> None:
    """runtime/zero/stage3.py: load_hp_checkpoint_state_from_checkpoint_dir_stage3, engine.py: _get_ckpt_name."""
    import torch

    for path in target.glob("mp_rank_*_model_states.pt"):
        path.rename(path.with_name(f"zero_pp_rank_0_{path.name}"))
    optimizer_file = next(source.glob("*zero_pp_rank_0_mp_rank_00_optim_states.pt"), None)
    if optimizer_file is None:
        raise InputError(f"{source} has no optimizer file of rank 0")
    state: dict[str, Any] = torch.load(optimizer_file, map_location="cpu", weights_only=False)["optimizer_state_dict"]
    base = state["base_optimizer_state"]
    steps = {number: {"step": each["step"]} for number, each in base["state"].items() if "step" in each}
    merged_file = target / "zero" / "optimizer_state.pt"
    merged = torch.load(merged_file, map_location="cpu", weights_only=False)
    merged["optimizer_state_dict"] = {"state": steps, "param_groups": base["param_groups"]}
    torch.save(merged, merged_file)


def _copy_rest(source: Path, target: Path, tag: str) -> None:
    for path in sorted(source.iterdir()):
        skipped = path.name in (tag, MANIFEST_FILE, "latest") or path.name.startswith(MARKER_PREFIX)
        if path.is_file() and not skipped:
            shutil.copy2(path, target / path.name)
    (target / "latest_universal").write_text(tag)
