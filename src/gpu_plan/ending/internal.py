"""An error of this program itself: one line for the user, and a file for whoever mends it.   I/O"""

import contextlib
import errno
import os
import sys
import tempfile
import traceback
from pathlib import Path

from gpu_plan.planner.visible import visible

_KEPT = 20
"""Files: beyond, the oldest go."""
_REFUSALS = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EMFILE", "ENFILE", "EAGAIN", "ENOMEM")
)


def refusal(error: BaseException) -> str | None:
    """What the machine refused, in one line, where that alone is what ended the work: a full disk, no more files."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return visible(f"{where}{error.strerror or error}")


def keep(error: BaseException, words: list[str]) -> str:
    """Keeps the traceback; gives the line to be said: what, in which of our lines, and where the rest stands."""
    reason = " ".join(f"{type(error).__name__}: {_text_of(error)}".split()).rstrip(": ")
    place = _place(error)
    try:
        kept = f"its traceback is in {_write(_content(error, words))}"
    except (OSError, MemoryError, RecursionError) as problem:
        kept = f"its traceback could be written nowhere ({type(problem).__name__})"
    return visible(f"internal error{place}: {reason[:300]}; {kept}")


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be printed)"


def _place(error: BaseException) -> str:
    """` at planner/x.py:12`: the innermost frame of this package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    place, trace = "", error.__traceback__
    while trace is not None:
        file = os.path.abspath(trace.tb_frame.f_code.co_filename)
        if file.startswith(ours) and trace.tb_frame.f_globals.get("__name__") != "gpu_plan.cli":
            place = f" at {file.removeprefix(ours)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _content(error: BaseException, words: list[str]) -> str:
    from gpu_plan.version import __version__

    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-200)
    command = " ".join(["plan", *map(repr, words)])
    return f"gpu-plan {__version__}, Python {sys.version}\n{command}\n\n{''.join(lines)}"


def _write(content: str) -> Path:
    """In the cache's own folder, else in that for temporary files. Raises OSError where neither can be written."""
    from gpu_plan.planner.cache_dir import cache_dir

    folder = cache_dir() / "errors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = _new_file(folder, content)
    except OSError:
        return _new_file(Path(tempfile.gettempdir()), content)
    _prune(folder)
    return written


def _new_file(folder: Path, content: str) -> Path:
    handle, name = tempfile.mkstemp(dir=folder, prefix="gpu-plan-error-", suffix=".txt")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return Path(name)


def _prune(folder: Path) -> None:
    with contextlib.suppress(OSError):
        entries = sorted(folder.glob("gpu-plan-error-*.txt"), key=lambda path: path.stat().st_mtime)
        for path in entries[:-_KEPT]:
            path.unlink()
