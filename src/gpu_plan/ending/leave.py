"""The end of the command's process.   I/O

Python takes every object apart before it ends: after a search a tenth of a second and more, for memory that the
system takes back at once. What was registered to run at the end runs; the rest is left as it lies, as mypy leaves it
(mypy/util.py: hard_exit).
"""

import atexit
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends with `code`. Where a thread still runs Python ends by itself, which waits for it."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
