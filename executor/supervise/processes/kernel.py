"""What Linux's prctl does for a run; elsewhere nothing happens. The standard library alone."""

import ctypes
import os
import signal

# Numbers of prctl(2).
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans(wanted: bool = True) -> None:
    """Makes this process the parent of its descendants' orphans (Linux's child subreaper), or no longer."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def die_with(parent: int) -> None:
    """The kernel kills this process when the thread that begat it ends; at once where `parent` is gone already."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    call = getattr(_LIBC, "prctl", None)
    if call is not None:
        call(option, value, 0, 0, 0)
