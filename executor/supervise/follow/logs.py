"""The files that ranks and launcher write to: followed for the terminal, and bounded (I/O)."""

import contextlib
import ctypes
import os
import re
from pathlib import Path

from gpu_plan.executor.supervise.processes.launch import LAUNCHER_ERR, LAUNCHER_OUT

# fallocate(2): FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_CHUNK = 64 * 1024
_LAUNCHER_TRACE = re.compile(r"^Traceback \(most recent call last\):\n  File \"[^\"\n]*accelerate", re.MULTILINE)


class Follower:
    """Gives what was added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def more(self) -> str:
        """At most 64 KiB of new text; empty where there is none."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self._offset)
            content = file.read(_CHUNK)
            if content:
                cut = _whole_characters(content)
                self._offset += cut
                return content[:cut].decode("utf-8", "replace").replace("\0", "")
        return ""


def _whole_characters(content: bytes) -> int:
    """Length without an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte & 0xC0 == 0xC0:
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return len(content) - back if back < width and len(content) > back else len(content)
        if byte & 0x80 == 0:
            break
    return len(content)


def rank_logs(logs: Path, local_rank: int, stream: str) -> Path | None:
    """Where torch's elastic agent put a rank's `stdout` or `stderr` (torch.distributed.elastic, DefaultLogsSpecs)."""
    found = sorted(logs.glob(f"*/attempt_*/{local_rank}/{stream}.log"))
    if not found:  # placed on nodes by an engine, each with a folder of its own
        found = sorted(logs.glob(f"node-0/*/attempt_*/{local_rank}/{stream}.log"))
    return found[-1] if found else None


def launcher_reports(logs: Path, size: int) -> list[str]:
    """The end of what the launcher wrote to stderr; where an engine started one on each node, of every one of them."""
    nodes = sorted(logs.glob("node-*.stderr.log"), key=lambda path: (len(path.name), path.name))
    return [tail(path, size) for path in (logs / LAUNCHER_ERR, *nodes)]


class Output:
    """What the user's script prints on the first rank of this machine.

    Under the elastic agent that rank has files of its own; a launch of one process writes to the launcher's.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._streams: dict[bool, Follower] = {}

    def moved(self, logs: Path) -> None:
        """The folder has been put away: what was followed is followed there."""
        for follower in self._streams.values():
            if follower.path.is_relative_to(self._logs):
                follower.path = logs / follower.path.relative_to(self._logs)
        self._logs = logs

    def more(self, started: bool) -> list[tuple[bool, str]]:
        """New text, with whether it came on stderr. `started`: rank 0 runs, so that its own files exist if ever."""
        found = []
        for error, stream, launcher in ((False, "stdout", LAUNCHER_OUT), (True, "stderr", LAUNCHER_ERR)):
            follower = self._streams.get(error)
            if follower is None:
                path = rank_logs(self._logs, 0, stream) or (self._logs / launcher if started else None)
                if path is None:
                    continue
                follower = self._streams[error] = Follower(path)
            while text := follower.more():
                found.append((error, _without_launcher(text) if follower.path.name == LAUNCHER_ERR else text))
        return found


def _without_launcher(text: str) -> str:
    """Without accelerate's own traceback about a process that failed: the process has said why."""
    return _LAUNCHER_TRACE.split(text, maxsplit=1)[0]


def tail(path: Path, size: int = 8192) -> str:
    """The last `size` bytes of a file, from a line's start; empty where there is none."""
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - size))
            text = file.read(size).decode("utf-8", "replace").lstrip("\0")
    except OSError:
        return ""
    return text if length <= size else text.partition("\n")[2]


def bound_logs(logs: Path, limit: int) -> None:
    """Gives the disk back what log files hold beyond their last `limit` bytes, while they are being written.

    A hole is punched: the writer's position stays right and the reader finds zeros that it passes over.
    """
    for path in logs.rglob("*.log"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_blocks * 512 > 2 * limit:
                _punch(path, status.st_size - limit)


def settle_logs(logs: Path, limit: int) -> None:
    """After the end: files with holes or beyond `limit` are rewritten with their last `limit` bytes alone."""
    for path in logs.rglob("*.log"):
        with contextlib.suppress(OSError):
            if path.stat().st_size > limit:
                text = tail(path, limit)
                temporary = path.with_suffix(".tmp")
                temporary.write_text(f"[earlier output was dropped]\n{text}", encoding="utf-8")
                os.replace(temporary, path)


def _punch(path: Path, length: int) -> None:
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        return
    descriptor = os.open(path, os.O_WRONLY)
    try:
        size = length // 4096 * 4096
        fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))
    finally:
        os.close(descriptor)
