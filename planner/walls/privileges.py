"""What a process gives up before it runs code that is not ours (I/O)."""

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_plan.planner.walls.kernel import call, control

_SET_SECUREBITS, _SET_NO_NEW_PRIVILEGES, _DROP_BOUND, _AMBIENT = 28, 38, 24, 47
_CLEAR_AMBIENT = 4
_LOCKED = 0xEF
"""SECBIT_NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and their locks, and KEEP_CAPS's lock: user 0 is no root."""
_LAST_CAPABILITY = 63
_READ_ALL = 2
"""CAP_DAC_READ_SEARCH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of each process behind the walls, as the kernel counts them."""

    processes: int
    """Of the user, beside those that there are already; root is not counted."""
    file_bytes: int
    files: int = 4096


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def give_up(*, read_all: bool = False) -> None:
    """Drops every capability, for what is started later as well; with `read_all`, the right to read stays if it is
    held. OSError where the kernel refuses."""
    kept = 1 << _READ_ALL if read_all and os.geteuid() == 0 else 0
    for number in range(_LAST_CAPABILITY + 1):
        try:
            control(_DROP_BOUND, number)
        except OSError:
            break  # the last one that the kernel knows is behind us; or there are none to drop
    with contextlib.suppress(OSError):
        control(_AMBIENT, _CLEAR_AMBIENT)
    with contextlib.suppress(OSError):
        control(_SET_SECUREBITS, _LOCKED)
    header = _Header(0x20080522, 0)
    sets = (_Sets * 2)(_Sets(kept, kept, 0), _Sets(0, 0, 0))
    try:
        call("capset", ctypes.byref(header), ctypes.byref(sets))
    except PermissionError:
        sets[0] = _Sets(0, 0, 0)
        call("capset", ctypes.byref(header), ctypes.byref(sets))
    control(_SET_NO_NEW_PRIVILEGES, 1)


def limit(bounds: Bounds) -> None:
    """Sets the limits."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, bounds.file_bytes)
    _lower(resource.RLIMIT_NOFILE, bounds.files)
    _lower(resource.RLIMIT_NPROC, bounds.processes + _own_processes())


def offer_first() -> None:
    """Where memory runs out, the kernel ends this process, or what it starts, before the user's other work."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def close_others(kept: Iterable[int]) -> None:
    """Closes every descriptor but the standard ones and `kept`."""
    before = 2
    for descriptor in sorted({*kept, 2}):
        os.closerange(before + 1, descriptor)
        before = descriptor
    os.closerange(before + 1, max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], before + 1, 4096))


def _lower(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))


def _own_processes() -> int:
    """Tasks that this user has already: the kernel counts them all against the limit."""
    uid, count = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
            except OSError:
                continue
    return count
