"""Regular files alone, opened without waiting.   I/O"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KERNELS = frozenset({"proc", "sysfs", "debugfs", "tracefs", "securityfs", "configfs", "cgroup", "cgroup2", "bpf"})
_NONE = 0
"""Blocks of a file that lies on no disk: those of the kernel's file systems have no other number."""


class NotAFileError(OSError):
    """What stands at a path is there and no regular file; `strerror` says what it is, as in `it is a FIFO`."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The regular file at `path`, for reading. NotAFileError where it is something else, OSError as `open` raises it.

    Opened without waiting: a FIFO that nobody writes, a terminal or a tape would hold `open` for ever.
    """
    name = os.fspath(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotAFileError(errno.EINVAL, "it is a socket, not a file", name) from None
        raise
    try:
        _check(descriptor, name)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of the regular file at `path`; raises as `open_regular` does."""
    with open_regular(path) as file:
        return file.read(most)


def _check(descriptor: int, name: str) -> None:
    status = os.fstat(descriptor)
    kind = _other(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, kind, name)
    if kind is None and status.st_blocks == _NONE and _is_kernels(status.st_dev):
        kind = "it is a window into the kernel, not a file"
    if kind is not None:
        raise NotAFileError(errno.EINVAL, kind, name)


def _other(mode: int) -> str | None:
    kinds = {
        stat.S_IFDIR: "it is a folder",
        stat.S_IFIFO: "it is a pipe, not a file",
        stat.S_IFSOCK: "it is a socket, not a file",
        stat.S_IFCHR: "it is a device, not a file",
        stat.S_IFBLK: "it is a device, not a file",
    }
    return kinds.get(stat.S_IFMT(mode)) if not stat.S_ISREG(mode) else None


def _is_kernels(device: int) -> bool:
    """Whether a file system is one of those that the kernel makes up; by its own list (proc(5), mountinfo)."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        mount, _, rest = line.partition(" - ")
        words = mount.split(" ")
        if len(words) > 2 and words[2] == wanted and rest.partition(" ")[0] in _KERNELS:
            return True
    return False
