"""Ways of memory, of files without end, and to secrets."""
# ruff: noqa: SIM115 - what is opened is left to the process's end

import errno
import os
import signal

from tools import OUT, TEMPORARY, way


@way("memory: in files that nobody maps (memfd)")
def _() -> object:
    return os.memfd_create("out")


@way("files: a file without end")
def _() -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(os.path.join(TEMPORARY, f"endless-{os.getpid()}"), "wb") as file:
        os.ftruncate(file.fileno(), OUT["most"] + 1)
        return "larger than the bound"


@way("secrets: the environment's")
def _() -> object:
    found = [name for name, value in os.environ.items() if OUT["secret"] in value]
    if not found:
        raise OSError(errno.ENOENT, "no variable holds it")
    return found


@way("secrets: what the environment was at the start")
def _() -> object:
    if OUT["secret"].encode() not in open("/proc/self/environ", "rb").read():
        raise OSError(errno.ENOENT, "it does not hold it")
