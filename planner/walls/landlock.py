"""Landlock: this process and all that it starts write into one folder alone (man 7 landlock) (I/O).

Reading stays open but for devices. With its newer versions the kernel also keeps them from TCP, from abstract sockets
and from signalling anybody else; all versions keep them from tracing other processes.
"""

import ctypes
import os

from gpu_plan.planner.walls.kernel import NoWallError, call

_VERSION = 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _EXECUTE = 1 << 1, 1 << 2, 1 << 3, 1 << 0
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights over files that each version added to those before it."""
_TCP = 3
"""LANDLOCK_ACCESS_NET_BIND_TCP and CONNECT_TCP."""
_SCOPES = 3
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and SIGNAL."""
_BENEATH = 1
_DEVICES = ("null", "zero", "full", "random", "urandom")


class _Ruleset(ctypes.Structure):
    """struct landlock_ruleset_attr."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """The kernel's version of Landlock. NoWallError where it has none, or has it switched off."""
    try:
        return call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError as problem:
        raise NoWallError(f"Landlock: {problem.strerror}") from None


def restrict(scratch: str) -> int:
    """From now on, writes go into `scratch` alone; gives the version. The process must have given up new privileges.

    NoWallError where the kernel refuses.
    """
    found = version()
    handled = next(rights for since, rights in sorted(_BY_VERSION.items(), reverse=True) if since <= found)
    handled &= ~(_READ_DIR | _EXECUTE)
    asked = _Ruleset(handled, _TCP if found >= 4 else 0, _SCOPES if found >= 6 else 0)
    size = 24 if found >= 6 else 16 if found >= 4 else 8
    try:
        ruleset = call("landlock_create_ruleset", ctypes.byref(asked), size, 0)
        try:
            _allow(ruleset, scratch, handled & ~(_MAKE_DEVICES | _DEVICE_CONTROL))
            for entry in os.scandir("/"):
                if entry.name != "dev" and not entry.is_symlink() and (entry.is_dir() or entry.is_file()):
                    _allow(ruleset, entry.path, _READ_FILE)
            for name in _DEVICES:
                _allow(ruleset, f"/dev/{name}", handled & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
            call("landlock_restrict_self", ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as problem:
        raise NoWallError(f"Landlock: {problem.strerror}") from None
    return found


def _allow(ruleset: int, place: str, rights: int) -> None:
    try:
        folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        rule = _Beneath(rights, folder)
        call("landlock_add_rule", ruleset, _BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(folder)
