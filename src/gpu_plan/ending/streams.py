"""The command's own streams: stdout that says why it cannot be written, stderr that never ends anything.   I/O

Python writes what is left in its buffers when it ends, and answers what fails there with a traceback's lines and exit
code 120 (CPython, Python/pylifecycle.c: flush_std_files). So the buffers are emptied before, where it can be told.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO, TypeVar

from gpu_plan.planner.errors import OutputError, ReaderGoneError

Wrapper = TypeVar("Wrapper", bound=io.TextIOWrapper)


class GuardedOutput(io.TextIOWrapper):
    """stdout: raises OutputError in one line where it cannot be written, ReaderGoneError where nobody reads it."""

    def write(self, text: str, /) -> int:
        with _told(self.encoding):
            return super().write(text)

    def flush(self) -> None:
        with _told(self.encoding):
            super().flush()


class QuietErrors(io.TextIOWrapper):
    """stderr: what cannot be said there is not said, and nothing ends for it."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError, ValueError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().flush()


def guard() -> None:
    """Puts both in the place of `sys.stdout` and `sys.stderr`, once, at the start of a process.

    A descriptor that was closed would be the number of the next file opened, and a child would print into it: it
    becomes the null device, for reading alone in stdout's place, so that writing there fails as it should.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        _fill(number, flags)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _put(GuardedOutput, sys.stdout, 1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _put(QuietErrors, sys.stderr, 2, "backslashreplace")  # type: ignore[misc]


def emptied() -> OutputError | None:
    """Writes what is still in stdout's buffer; what that says, if it cannot be written."""
    try:
        sys.stdout.flush()
    except OutputError as problem:
        return problem
    return None


def abandon_stdout() -> None:
    """What is still in the buffer goes nowhere: its failure was told, and the end of Python shall not tell it again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


@contextlib.contextmanager
def _told(encoding: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError("the reader of stdout has gone") from None
    except OSError as error:
        why = "it is closed" if error.errno == 9 else error.strerror or str(error)
        raise OutputError(f"stdout cannot be written: {why}; send it to a file or pipe that can") from None
    except UnicodeEncodeError as error:
        character = error.object[error.start : error.start + 1]
        raise OutputError(
            f"stdout takes {encoding} alone, which has no {character!a}: send it elsewhere with -o FILE,"
            " or set PYTHONIOENCODING=utf-8"
        ) from None


def _fill(number: int, flags: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        else:
            os.set_inheritable(number, True)


def _put(kind: type[Wrapper], given: TextIO | None, number: int, errors: str) -> Wrapper:
    """`given`'s own buffer and manners under another class; a buffer on `number` where it was closed."""
    if isinstance(given, io.TextIOWrapper):
        encoding, line, through = given.encoding, given.line_buffering, given.write_through
        errors = given.errors or errors
        return kind(given.detach(), encoding=encoding, errors=errors, line_buffering=line, write_through=through)
    buffer = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
    return kind(buffer, encoding="utf-8", errors=errors, line_buffering=True)
