"""Why a write of the script's was refused, in words.

The words are friendlier than the kernel's errors and hold nothing back by themselves: ctypes passes an audit hook by.
"""

import errno
import os
import sys
from collections.abc import Mapping
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Mapping[str, tuple[int, int | None]] = {
    "os.remove": (0, 1), "os.rename": (0, 2), "os.rmdir": (0, 1), "os.mkdir": (0, 2), "os.link": (1, 3),
    "os.symlink": (1, 2), "os.truncate": (0, None),
}  # fmt: skip
"""Audit events: which of their arguments is the path that would be changed, and which the folder it is relative to."""


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
