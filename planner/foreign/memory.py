"""A bound on memory for readers that have none of their own, such as pickle's memo.   I/O"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """MemoryError inside, where the process would take `more` bytes of address space beyond those that it has.

    Where the kernel does not say how many those are (no /proc), nothing is bounded.
    """
    now = _address_space()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = None if now is None else now + more
    if limit is None or (soft != resource.RLIM_INFINITY and soft <= limit):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return None
    return int(pages) * resource.getpagesize()
