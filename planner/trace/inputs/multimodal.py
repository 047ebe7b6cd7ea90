"""Images for vision-language models: one per sample at its config's size, with the placeholder tokens."""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.family import forward_names

_DYNAMIC_PIXELS = 448
"""Side of the image for models that take any resolution: their configs name none."""


def add_images(model: nn.Module, given: dict[str, Any]) -> list[str]:
    """Add one image per sample to `given`, whose `input_ids` [batch, seq_len] get that image's placeholders.

    Returns notes. InputError when the sequence is too short for the image's tokens.
    """
    config: Any = model.config
    names = forward_names(model)
    vision = getattr(config, "vision_config", None)
    if "aspect_ratio_ids" in names:
        return _add_tiled_cross_attention(vision, config, given)
    if "image_grid_thw" in names:
        return _add_patch_grid(vision, config, given, names)
    if "image_position_ids" in names:
        return _add_positioned_patches(vision, config, given)
    return _add_square_image(vision, config, given, names)


def _image_token(config: Any) -> int:
    for key in ("image_token_id", "image_token_index", "media_placeholder_token_id"):
        value = getattr(config, key, None)
        if isinstance(value, int):
            return value
    raise InputError(f"config: {type(config).__name__} names no image placeholder token (image_token_id)")


def _place(config: Any, given: dict[str, Any], count: int) -> torch.Tensor:
    """Put `count` placeholders after the first token of every sample; returns the mask [batch, seq_len]."""
    ids = given["input_ids"]
    if ids.shape[1] < count + 2:
        raise InputError(
            f"one image takes {count} tokens of this model: give --seq-len of at least {count + 2}, not {ids.shape[1]}"
        )
    ids[:, 1 : 1 + count] = _image_token(config)
    mask = torch.zeros_like(ids)
    mask[:, 1 : 1 + count] = 1
    return mask


def _add_square_image(vision: Any, config: Any, given: dict[str, Any], names: frozenset[str]) -> list[str]:
    """LLaVA, Gemma-3, Llama-4: a fixed square image, one tile."""
    batch, side = given["input_ids"].shape[0], int(vision.image_size)
    given["pixel_values"] = torch.empty(batch, getattr(vision, "num_channels", 3), side, side, device="meta")
    patches = (side // int(vision.patch_size)) ** 2
    count = patches
    if getattr(config, "mm_tokens_per_image", None):
        count = int(config.mm_tokens_per_image)
    elif getattr(vision, "pixel_shuffle_ratio", None):
        count = round(patches * float(vision.pixel_shuffle_ratio) ** 2)
    elif getattr(config, "vision_feature_select_strategy", "default") == "full":
        count = patches + 1
    mask = _place(config, given, count)
    if "token_type_ids" in names:
        given["token_type_ids"] = mask
    return [f"one image of {side} x {side} pixels per sample: {count} of the sequence's tokens"]


def _add_patch_grid(vision: Any, config: Any, given: dict[str, Any], names: frozenset[str]) -> list[str]:
    """Qwen-VL and Kimi: patches of any resolution, flattened over the batch, with a (t, h, w) grid."""
    batch, patch = given["input_ids"].shape[0], int(vision.patch_size)
    sizes = getattr(vision, "spatial_merge_size", None) or getattr(vision, "merge_kernel_size", None) or 2
    merge = int(sizes[0] if isinstance(sizes, list | tuple) else sizes)
    side = _DYNAMIC_PIXELS // (patch * merge) * merge
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", None) or 3
    frames = getattr(vision, "temporal_patch_size", None)
    rows = batch * side * side
    shape = (rows, channels * frames * patch * patch) if frames else (rows, channels, patch, patch)
    given["pixel_values"] = torch.empty(shape, device="meta")
    given["image_grid_thw"] = torch.tensor([[1, side, side]], device="cpu").repeat(batch, 1)
    count = (side // merge) ** 2
    mask = _place(config, given, count)
    if "mm_token_type_ids" in names:
        given["mm_token_type_ids"] = mask
    return [f"one image of {side * patch} x {side * patch} pixels per sample (assumed): {count} of its tokens"]


def _add_positioned_patches(vision: Any, config: Any, given: dict[str, Any]) -> list[str]:
    """Gemma-4: a fixed number of patches with their (x, y) positions, pooled k x k."""
    batch, pool = given["input_ids"].shape[0], int(vision.pooling_kernel_size)
    count = int(getattr(config, "vision_soft_tokens_per_image", None) or vision.default_output_length)
    height = next(size for size in range(int(count**0.5), 0, -1) if count % size == 0)
    columns, rows = count // height * pool, height * pool
    ys, xs = torch.meshgrid(torch.arange(rows, device="cpu"), torch.arange(columns, device="cpu"), indexing="ij")
    positions = torch.stack((xs, ys), dim=-1).reshape(1, rows * columns, 2)
    given["image_position_ids"] = positions.to(given["input_ids"].device).repeat(batch, 1, 1)
    given["pixel_values"] = torch.empty(batch, rows * columns, 3 * int(vision.patch_size) ** 2, device="meta")
    given["mm_token_type_ids"] = _place(config, given, count)
    size = f"{columns * vision.patch_size} x {rows * vision.patch_size}"
    return [f"one image of {size} pixels per sample: {count} of the sequence's tokens"]


def _add_tiled_cross_attention(vision: Any, config: Any, given: dict[str, Any]) -> list[str]:
    """Llama-3.2-Vision: an image of one tile, padded to the most tiles as its processor does."""
    (batch, length), tiles = given["input_ids"].shape, int(vision.max_num_tiles)
    side = int(vision.image_size)
    given["pixel_values"] = torch.empty(batch, 1, tiles, vision.num_channels, side, side, device="meta")
    given["aspect_ratio_ids"] = torch.ones(batch, 1, dtype=torch.int64, device="cpu")
    mask = torch.zeros(batch, 1, tiles, dtype=torch.int64, device="cpu")
    mask[:, :, 0] = 1
    given["aspect_ratio_mask"] = mask
    cross = torch.zeros(batch, length, 1, tiles, dtype=torch.int64, device=given["input_ids"].device)
    cross[:, :, :, 0] = 1
    given["cross_attention_mask"] = cross
    _place(config, given, 1)
    return [f"one image of {side} x {side} pixels per sample, padded to {tiles} tiles as the processor does"]
