"""How fast a node's disk is, where nothing is known of it; how much of this machine's is free (I/O)."""

import os
from pathlib import Path

NVME_RANGE = (1e9, 3e9, 7e9)
"""Bytes per second of one node's NVMe: a virtual machine's, a data-centre drive's, the fastest single drive's."""
NVME_BYTES_PER_S = NVME_RANGE[1]
"""What is expected, of weights that are read for a generation as of ZeRO's swap files."""


def free_bytes(folder: Path) -> int | None:
    """What is free where a folder lies or is to be made; None where that cannot be asked."""
    found = next((place for place in (folder, *folder.absolute().parents) if place.exists()), None)
    try:
        return None if found is None else _free(found)
    except OSError:
        return None


def _free(folder: Path) -> int:
    """As shutil.disk_usage, which brings every archive format with it."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
