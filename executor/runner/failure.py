"""What an exception says about why a rank ended: the rank's status and the error of its record. Pure."""

import errno
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from types import TracebackType

from gpu_plan.executor.records.rank import RankError, RankStatus

MAX_TRACEBACK = 16_000
"""Characters kept of a traceback: its end, where the cause stands."""

_OOM_TYPES = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")
_OOM_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUDA out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Cuda failure 'out of memory'",
    "Cuda failure 2 'out of memory'",
    "std::bad_alloc",
    "Cannot allocate memory",
)
"""Of RuntimeErrors: torch's CPU allocator, the driver, cuBLAS and NCCL raise no type of their own."""

_PEER_TEXTS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Read error [",
    "Broken pipe",
    "Timed out waiting",
    "Socket Timeout",
    "wait timeout after",
    "failed to recv, got 0 bytes",
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "ncclSystemError",
    "NCCL communicator was aborted",
    "Application timeout caused pair closure",
    "Connection was likely closed",
)
"""As gloo (transport/tcp/pair.cc), NCCL and torch's store say it in the ranks that did not fail."""
_DISTRIBUTED = ("gloo", "nccl", "c10d", "TCPStore", "ProcessGroup")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = tuple(os.strerror(number) for number in _FULL)
"""In errors of safetensors and others that are no OSErrors."""

_BYTES = re.compile(r"tried to allocate (\d+) bytes", re.IGNORECASE)
_UNITS = re.compile(r"(?:Tried|Unable) to allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB)")
_FACTOR = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def describe(error: BaseException) -> tuple[RankStatus, RankError]:
    """Status and error for an exception that left the script. SystemExit is `exit`, also with code 0."""
    cause = next((one for one in _chain(error) if _is_oom(one)), None)
    if cause is not None:
        return "oom", _record(cause, error, requested=requested_bytes(str(cause)))
    if isinstance(error, SystemExit):
        return "exit", _record(error, error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", _record(error, error)
    if _is_peer(error):
        return "peer_failure", _record(error, error)
    return "exception", _record(error, error)


def place_words(record: RankError) -> str:
    """`SystemExit at /home/me/train.py:88`, for a script that left in the midst of itself."""
    return f"{record.type} at {record.file}:{record.line}" if record.file else record.type


def exit_code(error: BaseException) -> int:
    """What python ends with for it: an uncaught exception is 1, KeyboardInterrupt 130 (as a shell shows SIGINT)."""
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        return error.code & 0xFF if isinstance(error.code, int) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def requested_bytes(message: str) -> int | None:
    """What a failed allocation asked for; from `2.00 GiB` as exact as the message is."""
    found = _BYTES.search(message)
    if found:
        return int(found[1])
    found = _UNITS.search(message)
    return round(float(found[1]) * _FACTOR[found[2]]) if found else None


def qualified_name(kind: type) -> str:
    """`torch.OutOfMemoryError`; `ValueError` for a builtin."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the runner's own frames at its head, as if python itself had run the script."""
    here = os.path.dirname(__file__)
    at = trace
    while at is not None and _of_runner(at, here):
        at = at.tb_next
    return at


def _of_runner(trace: TracebackType, here: str) -> bool:
    name = trace.tb_frame.f_code.co_filename
    return name.startswith((here, "<frozen runpy>")) or os.path.basename(name) == "runpy.py"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from, or while handling."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _is_oom(error: BaseException) -> bool:
    if any(kind.__name__ in _OOM_TYPES for kind in type(error).__mro__):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OOM_TEXTS)


def _is_peer(error: BaseException) -> bool:
    if not isinstance(error, (RuntimeError, OSError)):
        return False
    text = str(error)
    if not any(part in text for part in _PEER_TEXTS):
        return False
    return type(error).__module__.startswith("torch") or any(part in text for part in _DISTRIBUTED)


def _record(cause: BaseException, error: BaseException, requested: int | None = None) -> RankError:
    file, line = _place(cause)
    if file is None:
        file, line = _place(error)
    whole = "".join(traceback.format_exception(type(error), error, user_frames(error.__traceback__)))
    full = next((one for one in _chain(error) if is_full_disk(one)), None)
    return RankError(
        type=qualified_name(type(cause)),
        message=str(cause),
        file=file,
        line=line,
        traceback=whole[-MAX_TRACEBACK:],
        requested_bytes=requested,
        full_disk=None if full is None else str(getattr(full, "filename", None) or ""),
    )


def is_full_disk(error: BaseException) -> bool:
    """Whether a write failed for want of room, and the error says so: torch's own writer does not."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return any(text in str(error) for text in _FULL_TEXTS)


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """File and line of the last frame in the user's own files."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    place: tuple[str | None, int | None] = (None, None)
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if _is_users(name):
            place = (os.path.abspath(name), line)
    return place


def _is_users(name: str) -> bool:
    if name.startswith("<") or "site-packages" in name or "dist-packages" in name:
        return False
    ours = os.path.dirname(os.path.dirname(__file__))
    return not name.startswith((ours + os.sep, sysconfig.get_paths()["stdlib"] + os.sep))
