"""Saved plans on disk: written whole or not at all, refused when they are not what they claim.   I/O"""

import os
from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import MAX_BYTES, load_object
from gpu_plan.planner.plan.document import PlanDocument, from_json
from gpu_plan.planner.plan.saved import SavedPlan, saved_from_json, saved_to_json
from gpu_plan.planner.whole_file import replace_file


def save(plan: SavedPlan, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write `plan`; an existing file needs `force`. Raises UsageError or UnreachableError in one line."""
    write_text(path, saved_to_json(plan) + "\n", force=force)


def load(path: str | os.PathLike[str]) -> SavedPlan:
    """Read what `save` wrote. UnreachableError where it cannot be read, InputError where it makes no sense."""
    return saved_from_json(_read(path), os.fspath(path))


def load_any(path: str | os.PathLike[str]) -> SavedPlan | PlanDocument:
    """Read what `save` wrote, or a document that `--json` printed. Raises as `load` does."""
    content, where = _read(path), os.fspath(path)
    saved = load_object(content, where).get("document") == "saved-plan"
    return saved_from_json(content, where) if saved else from_json(content, where)


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreachableError(
            f"there is no plan {os.fspath(path)}: make it with `plan MODEL --gpus ... --save`"
        ) from None
    except OSError as error:
        raise UnreachableError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode("utf-8"), force=force)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, force: bool = False) -> None:
    """Put `content` at `path` in one piece: a reader sees the old file, the new one, or none, never a part.

    A device or pipe is written straight. Raises UsageError where a file is there and `force` is not given,
    InputError for a folder, UnreachableError where it cannot be written; nothing is left behind then.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"{target} is a folder: name a file in it")
        if target.is_char_device() or target.is_fifo():
            target.write_bytes(content)
            return
        if not force and os.path.lexists(target):
            raise UsageError(f"{target} is there already: give --force to replace it, or name another file")
        replace_file(Path(os.path.realpath(target)), content, durable=True)
    except OSError as error:
        raise UnreachableError(f"{target} cannot be written: {error.strerror or error}") from None
