"""A checkpoint folder as its headers tell it, checked before a byte of it is loaded (I/O).

Only safetensors are loaded: a pickle runs what its author put in, and `load_checkpoint_and_dispatch` takes one where
it finds one, so it is always told the very file.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.config_reader import MAX_BYTES, parse_config, parse_object
from gpu_plan.planner.model.source.folder_headers import read_file
from gpu_plan.planner.model.source.headers import INDEX_NAME, MAX_HEADER, SINGLE_NAME, shard_names
from gpu_plan.planner.units import ceil_div

_BITS = {"bool": 8, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One stored tensor."""

    shape: tuple[int, ...]
    dtype: str
    """Torch's name."""
    shard: str

    @property
    def bytes(self) -> int:
        return ceil_div(math.prod(self.shape) * bits_of(self.dtype), 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything in a folder that a model is loaded from."""

    folder: Path
    entry: Path
    """The index, or the one file: what accelerate is told to load."""
    tensors: Mapping[str, Tensor]
    config: Mapping[str, object]
    digest: str
    """sha256 of config and headers; not of the values."""

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors.values())

    @property
    def largest_shard(self) -> int:
        """Bytes of the largest file's tensors."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            sizes[tensor.shard] = sizes.get(tensor.shard, 0) + tensor.bytes
        return max(sizes.values(), default=0)

    @property
    def dtype(self) -> str:
        """The floating type in which most of the weights are stored, torch's name."""
        bytes_of: dict[str, int] = {}
        for tensor in self.tensors.values():
            if "float" in tensor.dtype:
                bytes_of[tensor.dtype] = bytes_of.get(tensor.dtype, 0) + tensor.bytes
        return max(bytes_of, key=lambda name: bytes_of[name], default="float32")

    @property
    def quantised(self) -> bool:
        return self.config.get("quantization_config") is not None


def bits_of(dtype: str) -> int:
    """Bits of one element of a torch dtype by its name."""
    if dtype in _BITS:
        return _BITS[dtype]
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return int(digits) if digits else 8


def named_folder(model: str) -> Path | None:
    """The folder that `model` names, by itself or by its config.json; None where it names none that is there."""
    path = Path(os.path.expanduser(model))
    if path.name == "config.json" and path.is_file():
        return path.parent
    return path if path.is_dir() else None


def open_checkpoint(folder: Path) -> Checkpoint:
    """What `folder` holds. UnreachableError where there is nothing to read, InputError where it contradicts itself."""
    if not folder.is_dir():
        raise UnreachableError(f"there is no folder {folder}: prompts are run from a folder with safetensors")
    try:
        config = parse_config(_read(folder / "config.json", MAX_BYTES), str(folder / "config.json"))
        entry, weight_map = _entry(folder)
        tensors = _tensors(folder, entry, weight_map)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(f"{error.filename or folder} cannot be read: {reason}") from None
    listed = [(name, tensor.shape, tensor.dtype) for name, tensor in sorted(tensors.items())]
    whole = json.dumps([config, listed], sort_keys=True).encode()
    return Checkpoint(
        folder=folder, entry=entry, tensors=tensors, config=config, digest=hashlib.sha256(whole).hexdigest()
    )


def _read(path: Path, most: int) -> bytes:
    return read_bytes(path, most + 1)


def _entry(folder: Path) -> tuple[Path, Mapping[str, str] | None]:
    """The file to load from, and the index's word on where each tensor is."""
    index = folder / INDEX_NAME
    if index.is_file():
        content = _read(index, MAX_HEADER)
        shard_names(content, str(index))
        weight_map = parse_object(content, str(index), max_bytes=MAX_HEADER)["weight_map"]
        return index, {str(name): str(shard) for name, shard in weight_map.items()}
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if (folder / SINGLE_NAME).is_file():
        return folder / SINGLE_NAME, None
    if len(files) == 1:
        return files[0], None
    if files:
        raise InputError(f"{folder} has {len(files)} safetensors files and no {INDEX_NAME} that says what is in which")
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if pickles:
        raise InputError(
            f"{folder} has only pickled weights ({pickles[0]}), which are not loaded: a pickle runs code."
            " Save them as safetensors: model.save_pretrained(...)"
        )
    raise UnreachableError(f"{folder} has no safetensors file: prompts need the weights, not only the config")


def _tensors(folder: Path, entry: Path, weight_map: Mapping[str, str] | None) -> dict[str, Tensor]:
    shards = sorted(set(weight_map.values())) if weight_map is not None else [entry.name]
    found: dict[str, Tensor] = {}
    for shard in shards:
        path = folder / shard
        if not path.is_file():
            raise InputError(f"{folder} lacks {shard}, which {entry.name} names: fetch it again")
        for name, (shape, dtype) in read_file(path).items():
            if name in found:
                raise InputError(f"{folder} holds {name} twice, in {found[name].shard} and in {shard}: fetch it again")
            found[name] = Tensor(shape=shape, dtype=dtype, shard=shard)
        _check_layout(path)
    if weight_map is not None:
        _compare_index(folder, weight_map, found)
    return found


def _compare_index(folder: Path, weight_map: Mapping[str, str], found: Mapping[str, Tensor]) -> None:
    for name, shard in weight_map.items():
        if name not in found:
            raise InputError(f"{folder} lacks {name}: {INDEX_NAME} says it is in {shard}, its header does not")
        if found[name].shard != shard:
            raise InputError(f"{folder}: {INDEX_NAME} says {name} is in {shard}, it is in {found[name].shard}")
    extra = next((name for name in found if name not in weight_map), None)
    if extra is not None:
        raise InputError(f"{folder}: {found[extra].shard} holds {extra}, of which {INDEX_NAME} knows nothing")


def _check_layout(path: Path) -> None:
    """What safetensors itself will not open: tensors that overlap, gaps, bytes after the last one."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise InputError(f"{path} is not a usable safetensors file: {error}; fetch it again") from None
