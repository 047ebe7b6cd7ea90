"""Writes `rank-N.json`: whole, at once, and never in the script's way (I/O)."""

import contextlib
import os
import threading
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.reserve import Reserve

_TURN_SECONDS = 1.0
"""Longest wait for another thread's replacing, which may be stopped for good in a signal's handler."""


class RankFile:
    """A rank's record in the run folder. Only the process that made it writes: a forked worker never does."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.path = folder / names.rank_file(rank) if folder is not None else None
        self.problem: str | None = None
        """Why the last write failed, in one line."""
        self.final = False
        """Whether the last record is on the disk."""
        self._pid = os.getpid()
        self._closed = False
        self._reserve = Reserve(self.path) if self.path is not None else None
        if self._reserve is not None:
            try:
                self._reserve.keep()
            except OSError as error:
                self.problem = f"no room is kept for its last record: {error.strerror or error}"
        self._turn = threading.RLock()  # reentrant: a signal's handler writes in the midst of the main thread's writing

    @property
    def mine(self) -> bool:
        """Whether this process is the rank, not a child forked from it."""
        return os.getpid() == self._pid

    def write(self, text: str, *, last: bool = False) -> bool:
        """Replaces the record. False where it could not: a full disk does not end the training.

        `last` also waits for the disk: the final record survives a machine that stops.
        """
        if self.path is None or not self.mine or (self._closed and not last):
            return False
        self._closed |= last
        partial = self.path.with_name(f".{self.path.name}.{self._pid}.{threading.get_ident()}")
        try:
            with partial.open("w", encoding="ascii") as file:
                file.write(text)
                if last:
                    file.flush()
                    os.fsync(file.fileno())
            written = self._replace(partial, self.path, last)
        except OSError as error:
            self.problem = f"{self.path} could not be written: {error.strerror or error}"
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            return last and self._spend(text)
        if last and self._reserve is not None:
            self._reserve.give_back()
        return written

    def _spend(self, text: str) -> bool:
        """The last record, into the space that was kept for it."""
        try:
            if self._reserve is not None:
                self._reserve.spend(text.encode("ascii"))
                self.final = True
        except OSError:
            return False
        return self.final

    def _replace(self, partial: Path, path: Path, last: bool) -> bool:
        held = self._turn.acquire(timeout=_TURN_SECONDS)
        try:
            if self._closed and not last:  # another thread writes the final record
                partial.unlink()
                return False
            os.replace(partial, path)
            self.final |= last
            return True
        finally:
            if held:
                self._turn.release()
