"""Damage as a disk does it: a bit changed where it stands, nothing else."""

import os
from pathlib import Path


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Changes one byte; `at` below 0 counts from the end. The same once more puts it back."""
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        old = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([old ^ bits]))
