"""Disk space kept free for a last word (I/O): a record that says how something ended must not fail on a full disk.

The space is a file beside the record, with real blocks. It is written over in place and then renamed, which takes no
new block on a file system that writes where it stands; where that fails (copy on write), its blocks are given back
before the record is written anew. The standard library only: ranks keep one too.
"""

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 256 * 1024
"""More than a record of 288 steps with a traceback takes, and a run's with dozens of attempts."""


class Reserve:
    """Room for one record. Nothing is kept until `keep`."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._path = record.with_name(f".{record.name}.reserve")

    def keep(self) -> None:
        """Takes the space. Raises OSError where there is too little, and keeps nothing then."""
        try:
            with self._path.open("wb", buffering=0) as file:
                left = RESERVE_BYTES
                while left > 0:  # not zeros: some file systems do not store those
                    left -= file.write(os.urandom(min(left, 65536)))
        except OSError:
            self.give_back()
            raise

    def spend(self, content: bytes) -> None:
        """Makes `content` the record, in one piece and on the disk. Raises OSError; the space is gone either way."""
        try:
            with self._path.open("r+b") as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._path, self._record)
        except OSError:
            self.give_back()
            with self._path.open("wb") as file:
                file.write(content)
            os.replace(self._path, self._record)

    def give_back(self) -> None:
        """Frees the space, if any is kept."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
