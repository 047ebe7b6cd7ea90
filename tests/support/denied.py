"""`python -m tests.support.denied CALL,CALL COMMAND...`: runs a command on a kernel that refuses these system calls.

As containers do: with EPERM, for the command and all that it starts.
"""

import errno
import os
import sys

from gpu_plan.planner.walls.filter import Rule
from gpu_plan.planner.walls.kernel import control
from gpu_plan.planner.walls.system_calls import restrict

NAMESPACES = "unshare"
EVERYTHING = "unshare,landlock_create_ruleset"


def command(calls: str, *words: str) -> list[str]:
    """Words that start `words` so."""
    return [sys.executable, "-P", "-m", "tests.support.denied", calls, *words]


if __name__ == "__main__":
    control(38, 1)  # PR_SET_NO_NEW_PRIVS
    restrict(tuple(Rule(name, errno.EPERM) for name in sys.argv[1].split(",")))
    os.execvp(sys.argv[2], sys.argv[2:])
