"""`python guard.py WORDS...`: runs a command that is told to end (SIGTERM) when whoever started the guard goes.

A launcher that is killed leaves its ranks behind, and Ray kills a worker's children by SIGKILL when it ends the worker
(core_worker.cc: KillChildProcs). Between the two stands this process: it is killed, and the kernel tells what it
started. The standard library alone: Ray's own Python runs it too.
"""

import ctypes
import os
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


def main(words: list[str]) -> int:
    """The command's own exit code; 128 and the number where a signal ended it."""
    own = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != own:
            os._exit(1)
        os.execvp(words[0], words)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
