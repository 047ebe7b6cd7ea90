"""Pages of weight files that were read once and are not needed again (I/O on /proc/self/maps; Linux)."""

import contextlib
import ctypes
from collections.abc import Iterable
from pathlib import Path

_MADV_DONTNEED = 4


def forget_pages(files: Iterable[Path]) -> int:
    """Lets go of the resident pages of mapped `files`; gives the bytes of their mappings.

    safetensors maps a shard whole and its tensors are views: while one of them lives, pages of all others that were
    read (to be written to the offload folder) stay resident. A page that is used again comes back from the file.
    Only for mappings that nobody has written to: a changed page would be lost.
    """
    wanted = {str(path.resolve()) for path in files}
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    with contextlib.suppress(OSError, AttributeError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) < 6 or fields[5] not in wanted:
                continue
            begin, end = (int(address, 16) for address in fields[0].split("-"))
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)
            total += end - begin
    return total
