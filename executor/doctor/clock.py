"""Whether a time service keeps this machine's clock, as the kernel says (I/O)."""

import ctypes
import ctypes.util
import sys

_UNSYNCHRONISED = 5  # TIME_ERROR of sys/timex.h


def synchronised() -> bool | None:
    """The answer of adjtimex(2), asked with no mode set: it changes nothing. None where it cannot be asked."""
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)
        # struct timex is 208 bytes on 64-bit Linux; `modes` is its first field, 0 to read only.
        state = library.adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONISED
