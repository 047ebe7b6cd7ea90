"""Namespaces of its own for what this process becomes: users, mounts, processes, network, IPC, host name (I/O)."""

import os
from dataclasses import dataclass

from gpu_plan.planner.walls.kernel import NoWallError, call, control
from gpu_plan.planner.walls.view import View

_NEW_NS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_ALL = _NEW_NS | _NEW_CGROUP | _NEW_UTS | _NEW_IPC | _NEW_USER | _NEW_PID | _NEW_NET
_DEATH_SIGNAL, _SIGKILL = 1, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much memory what is written may take: in folders, and under /dev/shm."""

    written_bytes: int = 1 << 30
    shared_bytes: int = 1 << 30


def enter(room: Room, closed: tuple[int, ...]) -> tuple[str, ...]:
    """Returns in a process of the new namespaces; the ones in front of it wait, and end with its exit code.

    Gives the places that can only be read there. `closed` are descriptors that those in front let go of. NoWallError in
    whichever process found that the kernel refuses.
    """
    directory = os.getcwdb()
    uid, gid = os.getuid(), os.getgid()
    try:
        call("unshare", _ALL)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as problem:
        raise NoWallError(f"namespaces: {problem.strerror}") from None
    _step(closed)  # into the new namespace of processes, as its first
    control(_DEATH_SIGNAL, _SIGKILL)
    view = View(upper_bytes=room.written_bytes, shared_bytes=room.shared_bytes)
    try:
        view.enter(directory)
    except OSError as problem:
        raise NoWallError(f"namespaces: {problem.strerror}") from None
    _step(closed)  # its first process gets no signal that it has no handler for: what is run is another one
    control(_DEATH_SIGNAL, _SIGKILL)
    return tuple(map(os.fsdecode, view.unchanged))


def _step(closed: tuple[int, ...]) -> None:
    """Returns in a child; its parent waits for it."""
    child = os.fork()
    if child == 0:
        return
    for descriptor in closed:
        os.close(descriptor)
    while True:
        process, status = os.wait()
        if process == child:
            os._exit(exit_code(status))


def exit_code(status: int) -> int:
    """Of a wait status, as a shell has it: 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
