"""Safetensors headers of a folder on this machine."""

from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.files import open_regular, read_bytes
from gpu_plan.planner.model.source.headers import (
    INDEX_NAME,
    MAX_HEADER,
    SINGLE_NAME,
    StoredTensor,
    StoredWeights,
    collect,
    read_header,
    shard_names,
)

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def read_folder(folder: Path) -> tuple[StoredWeights | None, tuple[str, ...]]:
    """Stored weights of a checkpoint folder, and notes on why there are none.

    Reads headers only: of the shards that the index names, else of `model.safetensors`, else of every other
    `*.safetensors`. Raises InputError on a corrupt file, UnreachableError on an unreadable one.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
        shards = _shards(folder, names)
        if not shards:
            pickled = any(name.endswith(_PICKLES) for name in names)
            return None, ("the weights are pickles: not read",) if pickled else ()
        missing = [name for name in shards if name not in names]
        if missing:
            count = f"{len(missing)} of {len(shards)} weight files are missing ({missing[0]})"
            return None, (f"{count}: stored sizes not compared",)
        if any(_is_pointer(folder / name) for name in shards):
            return None, ("the weights are git-lfs pointers, not the files: stored sizes not compared",)
        return collect(read_file(folder / name) for name in shards), ()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(f"{error.filename or folder} cannot be read: {reason}; check its permissions") from None


def read_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors that one safetensors file declares. Raises InputError if corrupt, OSError if unreadable."""
    size = path.stat().st_size
    with open_regular(path) as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return read_header(read, size, str(path))


def _shards(folder: Path, names: list[str]) -> tuple[str, ...]:
    if INDEX_NAME in names:
        index = folder / INDEX_NAME
        if index.stat().st_size > MAX_HEADER:
            raise InputError(f"{index} is larger than any index: fetch it again")
        return shard_names(read_bytes(index, MAX_HEADER + 1), str(index))
    if SINGLE_NAME in names:
        return (SINGLE_NAME,)
    # Mistral's repositories hold the same weights a second time as consolidated*.safetensors.
    others = [name for name in names if name.endswith(".safetensors") and not name.startswith("adapter_")]
    return tuple(name for name in others if not name.startswith("consolidated")) or tuple(others)


def _is_pointer(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(8) == b"version "
