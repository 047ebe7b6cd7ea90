"""What the ways are tried with: what there is to reach, and calls past Python's own."""
# ruff: noqa: SIM115 - what is opened is left to the process's end

import ctypes
import json
import os
import sys
from collections.abc import Callable

OUT = json.load(open(sys.argv[1]))
DATA, KEEP, VICTIM = OUT["data"], OUT["data"] + "/keep.txt", OUT["victim"]
LIBC = ctypes.CDLL(None, use_errno=True)
TEMPORARY = os.environ.get("TMPDIR", "/tmp")
X86 = os.uname().machine == "x86_64"
WAYS: list[tuple[str, Callable[[], object]]] = []


def way(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def kept(function: Callable[[], object]) -> Callable[[], object]:
        WAYS.append((name, function))
        return function

    return kept


def call(x86: int, arm: int, *arguments: object) -> int:
    """A system call by its number."""
    result = LIBC.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (x86 if X86 else arm, *arguments)))
    return checked(result)


def checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def libc(name: str, *arguments: object) -> int:
    """A function of the C library: what Python itself would refuse or redirect is passed by."""
    return checked(getattr(LIBC, name)(*(a.encode() if isinstance(a, str) else a for a in arguments)))


def wrote(path: str, content: str = "out", flags: int = os.O_CREAT | os.O_TRUNC) -> str:
    descriptor = libc("open", path, os.O_WRONLY | flags, 0o600)
    libc("write", descriptor, content, len(content))
    os.close(descriptor)
    return f"{path} written"
