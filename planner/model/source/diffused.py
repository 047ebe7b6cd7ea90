"""Folders of diffusers: a model's with its `config.json`, a pipeline's with several of them. Only their JSON is read.

diffusers 0.42: models/modeling_utils.py (config.json), pipelines/pipeline_utils.py (model_index.json).
"""

import importlib.util
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import MAX_BYTES, OF_DIFFUSERS, parse_object, shown

TRAINED = ("UNet2DModel", "UNet2DConditionModel", "DiTTransformer2DModel", "PixArtTransformer2DModel",
           "SD3Transformer2DModel", "FluxTransformer2DModel", "AutoencoderKL")  # fmt: skip
"""Classes whose loop is known (planner/capture/diffusion)."""
_PARTS = ("unet", "transformer")
"""Of a pipeline, the folder of the model that its training scripts train."""


def is_diffused(config: dict[str, Any]) -> bool:
    """Whether diffusers wrote it."""
    return isinstance(config.get("_class_name"), str) and "_diffusers_version" in config


def class_of(config: dict[str, Any], where: str) -> str:
    """The class, of those that are known. InputError in one line for another, or where diffusers is not installed."""
    name = str(config["_class_name"])
    if name not in TRAINED:
        raise InputError(
            f"{where} is diffusers' {shown(name)}, of which {', '.join(TRAINED)} are planned by their folders:"
            f" {OF_DIFFUSERS}"
        )
    if importlib.util.find_spec("diffusers") is None:
        raise InputError(
            f"{where} is diffusers' {shown(name)}, which is not installed here: pip install diffusers, or"
            f" {OF_DIFFUSERS}"
        )
    return name


def part_of(folder: Path, model: str) -> Path:
    """The folder in a pipeline's whose model is trained. InputError for a pipeline that has none of the known ones."""
    index = parse_object((folder / "model_index.json").read_bytes()[: MAX_BYTES + 1], model, max_bytes=MAX_BYTES)
    found = next(
        (folder / part for part in _PARTS if part in index and (folder / part / "config.json").is_file()), None
    )
    if found is None:
        raise InputError(
            f"folder {model} is a pipeline of diffusers without {' or '.join(_PARTS)}: name the folder of one of its"
            f" models, or {OF_DIFFUSERS}"
        )
    return found
