"""Every tensor of a checkpoint, whatever wrote it: what tests compare."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

RANDOM_STATES = ("random_states_", "rng_state")


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """By file and key; random states included."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == ".metadata":
            with tempfile.NamedTemporaryFile() as whole:
                dcp_to_torch_save(path.parent, whole.name)
                value = torch.load(whole.name, weights_only=False)
            name = path.parent.relative_to(folder).as_posix()
        elif path.suffix == ".safetensors":
            value = load_file(path)
        elif path.suffix in (".bin", ".pt", ".pth", ".pkl"):
            value = torch.load(path, weights_only=False, map_location="cpu")
        else:
            continue
        found.update(dict(_walk(name, value)))
    return found


def _walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{name}/{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _walk(f"{name}/{index}", item)
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(value)


def differing(one: Path, other: Path) -> list[str]:
    """Names of what is not the same, bit for bit, in two checkpoints; of what only one has, too."""
    left, right = tensors(one), tensors(other)
    assert left, f"{one} holds no tensors"
    same = {
        name
        for name in left.keys() & right.keys()
        if left[name].dtype == right[name].dtype and torch.equal(left[name], right[name])
    }
    return sorted((left.keys() | right.keys()) - same)
