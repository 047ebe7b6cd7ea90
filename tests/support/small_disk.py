"""A disk that is soon full (root only)."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(mebibytes: int) -> Iterator[Path]:
    """A file system of its own; skips where mounting is not permitted.

    Not in the tests' temporary folder: a capture that another worker runs lays an overlay over that folder, which the
    kernel refuses where something is mounted beneath.
    """
    place = Path(tempfile.mkdtemp(prefix="plan-disk-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
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
