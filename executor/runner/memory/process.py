"""Memory of this process on the CPU: peaks of its resident memory between two borders (I/O on /proc)."""

import os
import resource
from typing import Protocol


class Memory(Protocol):
    """Where a rank's memory is read. A border ends one interval and begins the next."""

    device: str

    def border(self) -> tuple[int | None, int | None]:
        """Peak since the last border: (allocated, reserved) on CUDA, (resident, None) on the CPU; bytes."""

    def device_used(self) -> int | None:
        """Bytes in use on the device, by every process; None on the CPU."""

    def note(self) -> str | None:
        """What of this cannot be observed, or is changed by being observed."""


class ResidentMemory:
    """VmHWM of /proc/self/status, reset through /proc/self/clear_refs where the kernel permits it.

    Where it does not, what is resident at the border stands for the interval.
    """

    device = "cpu"

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._status = _open("/proc/self/status", os.O_RDONLY)
        self._clear = _open("/proc/self/clear_refs", os.O_WRONLY)
        if self._clear is not None and not self._reset():
            self._clear = None
        self._floor = _ru_maxrss()
        """What ru_maxrss never falls below: the launcher's own peak, which exec hands on."""

    def border(self) -> tuple[int | None, int | None]:
        if self._clear is None:
            return self._field(b"VmRSS:"), None
        # The same figure as VmHWM where it is above the floor, without formatting all of /proc/self/status.
        peak = _ru_maxrss()
        found = peak if peak > self._floor else self._field(b"VmHWM:")
        self._reset()
        return found, None

    def resident(self) -> int | None:
        """Bytes resident now."""
        return self._field(b"VmRSS:")

    def device_used(self) -> int | None:
        return None

    def note(self) -> str | None:
        if self._status is None:
            return "resident memory is not observed: this system has no /proc"
        if self._clear is None:
            return "resident memory is that at the end of each phase, not its peak: /proc/self/clear_refs is refused"
        return "VmHWM and ru_maxrss of this process are those of the latest phase: they are reset at each border"

    def _reset(self) -> bool:
        try:
            os.write(self._clear or -1, b"5")  # 5: the high-water mark (Linux, Documentation/filesystems/proc.rst)
        except OSError:
            return False
        return True

    def _field(self, name: bytes) -> int | None:
        if self._status is None:
            return None
        content = os.pread(self._status, 4096, 0)
        at = content.find(name)
        return int(content[at + len(name) : content.index(b"kB", at)]) * 1024 if at >= 0 else None


def _ru_maxrss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None
