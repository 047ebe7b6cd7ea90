"""The walls in words: what stood, and why a write of the script's was refused.

The words are friendlier than the kernel's errors and hold nothing back by themselves: ctypes passes an audit hook by.
"""

import errno
import os
import sys
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.walls.behind import Standing

NO_WALLS = (
    "is not executed: this machine offers no walls to run it behind ({}): --unwalled runs it with your own rights,"
    " --model plans a model in its place"
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Mapping[str, tuple[int, int | None]] = {
    "os.remove": (0, 1), "os.rename": (0, 2), "os.rmdir": (0, 1), "os.mkdir": (0, 2), "os.link": (1, 3),
    "os.symlink": (1, 2), "os.truncate": (0, None),
}  # fmt: skip
"""Audit events: which of their arguments is the path that would be changed, and which the folder it is relative to."""


def in_words(walls: Standing) -> str:
    """What stood around the script, for the report."""
    if walls.kind == "namespaces":
        only = f" ({', '.join(walls.unchanged[:3])} could only be read)" if walls.unchanged else ""
        return f"the script ran in namespaces of its own: what it wrote went nowhere{only}, and it had no network"
    if walls.kind == "landlock":
        return "the script ran under Landlock and seccomp: it wrote into a scratch folder alone, and had no network"
    return "the script ran without walls (--unwalled), with all rights of its user"


def explain(scratch: str) -> None:
    """From now on a refused write says who refuses it; only `scratch` can be written."""
    inside = os.path.realpath(scratch) + os.sep

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITES and not _open_to(path, inside):
                raise PermissionError(errno.EACCES, f"no file is written while plan looks at the script: {path}")
        elif event in _CHANGES:
            at, folder = _CHANGES[event]
            if (folder is None or args[folder] == -1) and not _open_to(args[at], inside):
                raise PermissionError(errno.EACCES, f"no file is changed while plan looks at the script: {args[at]}")

    sys.addaudithook(hook)


def _open_to(path: object, inside: str) -> bool:
    if isinstance(path, int):
        return True
    text = os.fsdecode(path) if isinstance(path, (str, bytes)) else str(path)
    return text.startswith("/dev/") or os.path.realpath(text).startswith(inside)
