"""Walls around the user's own code: files written go nowhere, no network, bounded processes (I/O).

Where the kernel allows it, the child gets namespaces of its own: an overlay whose upper layer is in memory covers the
working directory, the script's folder, the home folder and the temporary folder, and the network namespace has no way
out. Elsewhere, writing and connecting are refused by an audit hook (PEP 578), which cannot redirect but can forbid.
"""

import ctypes
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NEW_NS, _NEW_USER, _NEW_NET = 0x00020000, 0x10000000, 0x40000000
_PRIVATE, _REC = 0x40000, 0x4000
_UPPER_BYTES = 1 << 30
_PR_SET_PDEATHSIG = 1


def enter(folders: Sequence[Path], *, processes: int) -> str:
    """Puts this process behind the walls; gives their kind: `namespaces` or `refusals`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kind = "namespaces" if _namespaces(_covering(folders)) else "refusals"
    if kind == "refusals":
        sys.addaudithook(_refuse)
    _limit_processes(processes)
    return kind


def _limit_processes(processes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = processes + _own_processes()
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))


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


def _covering(folders: Sequence[Path]) -> list[Path]:
    """The outermost of the folders, each once, resolved; the root itself cannot be covered."""
    resolved = sorted({folder.resolve() for folder in folders if folder.is_dir()}, key=lambda path: len(path.parts))
    kept: list[Path] = []
    for folder in resolved:
        if len(folder.parts) > 1 and not any(folder.is_relative_to(other) for other in kept):
            kept.append(folder)
    return kept


def _namespaces(folders: Sequence[Path]) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    here = os.getcwd()
    if libc.unshare(_NEW_USER | _NEW_NS | _NEW_NET) != 0:
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    except OSError:
        return False
    if libc.mount(b"none", b"/", None, _REC | _PRIVATE, None) != 0:
        return False
    layers = Path(tempfile.mkdtemp(prefix="plan-capture-"))
    if libc.mount(b"tmpfs", os.fsencode(layers), b"tmpfs", 0, f"size={_UPPER_BYTES}".encode()) != 0:
        return False
    # The folder that holds the layers goes last: from then on they cannot be named any more.
    for number, folder in enumerate(sorted(folders, key=lambda folder: layers.resolve().is_relative_to(folder))):
        upper, work = layers / f"upper{number}", layers / f"work{number}"
        upper.mkdir()
        work.mkdir()
        options = f"lowerdir={_escaped(folder)},upperdir={upper},workdir={work}"
        if libc.mount(b"overlay", os.fsencode(folder), b"overlay", 0, options.encode()) != 0:
            return False
    os.chdir(here)  # the working directory itself may now be covered: enter the covered one
    return True


def _escaped(path: Path) -> str:
    """Overlay's options separate with commas and lower layers with colons."""
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = frozenset(
    {
        "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
        "os.chown", "os.system", "os.exec", "os.posix_spawn", "os.fork", "shutil.rmtree", "shutil.move",
        "subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto",
    }
)  # fmt: skip


_refusing = True


def lift_refusals() -> None:
    """For the process's own last words; an audit hook cannot be taken out."""
    global _refusing
    _refusing = False


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    """The audit hook: a write, a process or a connection becomes an OSError that names it."""
    if not _refusing:
        return
    if event == "open":
        path, _, flags = args
        if isinstance(flags, int) and flags & _WRITES and not _harmless(path):
            raise OSError(30, "plan captures without writing files", str(path))
    elif event in _FORBIDDEN:
        raise OSError(1, f"plan captures without {event}")


def _harmless(path: object) -> bool:
    return isinstance(path, int) or str(path).startswith(("/dev/", "/proc/self/"))
