"""A disk that is soon full (root only)."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(mebibytes: int, within: str | None = None) -> Iterator[Path]:
    """A file system of its own; skips where mounting is not permitted.

    In /dev/shm, or in the folder `within`.
    """
    folder = within or ("/dev/shm" if Path("/dev/shm").is_dir() else None)
    place = Path(tempfile.mkdtemp(prefix="plan-disk-", dir=folder))
    words = ("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "plan-test", place)
    mounted = subprocess.run(words, capture_output=True, text=True)
    try:
        if mounted.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(("umount", "-l", place), check=True)
    finally:
        place.rmdir()
