"""How many processes may work beside this one (I/O).

A process is forked where it is in the middle of nothing else: on Linux, without other threads of Python and without
torch, whose own threads and locks nobody asks. macOS's frameworks do not survive a fork; Windows has none.
"""

import os
import sys
from threading import Thread, current_thread
from threading import enumerate as threads

CORES = "GPU_PLAN_CORES"
"""Environment variable: cores that a search may use; all that the process may run on where it is not set."""
_MOST = 3
"""Workers: what one process does by itself is then longer than any of their parts."""


def workers() -> int:
    """Processes that may be forked; 0: everything is worked out here."""
    if not sys.platform.startswith("linux") or "torch" in sys.modules:
        return 0
    if not all(map(_is_harmless, threads())):
        return 0
    return max(0, min(cores() - 1, _MOST))


def _is_harmless(thread: Thread) -> bool:
    """Whether nothing that it may be in the middle of is touched by a worker: the one that forks, and the one that
    draws progress on a terminal, which no worker does."""
    return thread is current_thread() or type(thread).__module__ == "rich.live"


def cores() -> int:
    """Cores that this process may use."""
    given = os.environ.get(CORES, "")
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, int(given)) if given.isdecimal() else allowed
