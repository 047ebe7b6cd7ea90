"""Errors that a user can act on.

PlanError
├── UsageError        wrong option or combination                  exit 2
│   └── NotBuiltError an option of the interface that does not exist yet  exit 2
├── InputError        a file or value that makes no sense          exit 2
├── UnreachableError  a model or file that cannot be reached       exit 3
│   └── OutputError   stdout cannot be written                     exit 3
│       └── ReaderGoneError  whoever read it has left              said to nobody
└── PreflightError    the machine or script cannot run the plan    exit 4

Every message is one line: what, where, what to do. The CLI's main prints it as `plan: error: ...`.
"""

from enum import IntEnum

from gpu_plan.planner.visible import visible


class ExitCode(IntEnum):
    OK = 0
    NOTHING_FITS = 1
    USAGE = 2
    UNREACHABLE = 3
    PREFLIGHT = 4
    INTERNAL = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143
    """128 and the number of SIGHUP, SIGINT, SIGTERM, as a shell shows them: what ended `plan --execute`."""


class PlanError(Exception):
    """Base of every error shown to the user without a traceback."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str) -> None:
        super().__init__(visible(" ".join(message.split())))


class UsageError(PlanError):
    """An option, or a combination of options, that makes no sense."""


class NotBuiltError(UsageError):
    """Part of the fixed interface that this version does not have yet; refused by name."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not built yet in this version")


class InputError(PlanError):
    """A file or a value whose content makes no sense."""


class UnreachableError(PlanError):
    """A model or file that cannot be reached (network, permission, absence)."""

    exit_code = ExitCode.UNREACHABLE


class OutputError(UnreachableError):
    """What was asked for cannot be written to stdout: a full disk, a closed stream, a missing character."""


class ReaderGoneError(OutputError):
    """The reader of stdout has left, as in `plan ... | head`: nobody is there to be told."""


class PreflightError(PlanError):
    """The machine or the script cannot run what the plan says."""

    exit_code = ExitCode.PREFLIGHT


class StoppedError(KeyboardInterrupt):
    """A search that its user stopped, and what it had found."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__()
        self.lines = lines
        """One line each, for people."""
