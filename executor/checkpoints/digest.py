"""Digests of files: each byte read once while its page is still in memory, for little more than the reading (I/O).

For every 16 MiB: the CRC-32 of the sums of its 4 KiB pages, each page taken as 512 little-endian words of 64 bits,
added modulo 2^64, the last one filled up with zeros.

**Why so.** What is to be found is accident, not forgery: flipped bits, lost, swapped or stale blocks, cuts. A page in
which one word differs has another sum, whatever the difference; one with several has, unless they cancel out to the
bit; pages in another order, or of another time, give another CRC, but for one case in 2^32. The words are added by
numpy, which every rank that imports torch has, at what reading them from memory costs: 6 GB/s of a core here, the copy
out of the page cache included, where zlib.crc32 over every byte makes 1.9, BLAKE2b 0.3 and SHA-256 0.1 (xxh3 is as
fast, and no dependency of ours). numpy and the reading let other threads work: pieces are read on several cores, and
beside the waiting for the disk. What that adds to a save is in `benchmarks/results/damaged_checkpoints.md`.

The standard library and numpy only: ranks use it.
"""

import os
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PIECE = 16 * 1024 * 1024
"""Bytes that one CRC covers: part of the manifest's format, as the pages are."""
_PAGE = 4096
_BLOCK = 256 * 1024
"""Bytes read at once: they stay in the core's own cache. Whole pages."""
_MOST_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What was read of one file."""

    bytes: int
    changed: int
    """Its time of change in nanoseconds, as it was before it was read."""
    digits: str
    """Eight hexadecimal digits for each PIECE, the last one shorter; empty for an empty file."""


def digest_files(paths: Iterable[Path], *, flush: bool = False) -> dict[Path, Digest]:
    """The digest of each file; with `flush` it also waits until each has reached the disk, at the same time.

    Raises OSError.
    """
    found: dict[Path, tuple[os.stat_result, list[int]]] = {}
    flushes: list[Callable[[], None]] = []
    reads: list[Callable[[], None]] = []
    for path in paths:
        seen = path.stat()
        pieces = [0] * -(-seen.st_size // PIECE)
        found[path] = seen, pieces
        if flush:
            flushes.append(partial(_flush, path))
        reads += [partial(_read, path, number, pieces) for number in range(len(pieces))]
    _together([*flushes, *reads], waiting=bool(flushes))
    return {
        path: Digest(bytes=seen.st_size, changed=seen.st_mtime_ns, digits="".join(f"{each:08x}" for each in pieces))
        for path, (seen, pieces) in found.items()
    }


def first_difference(one: str, other: str) -> int:
    """Where the first piece begins whose CRC differs, in bytes; the end of the shorter one where none does."""
    pieces = min(len(one), len(other)) // 8
    for number in range(pieces):
        if one[number * 8 : number * 8 + 8] != other[number * 8 : number * 8 + 8]:
            return number * PIECE
    return pieces * PIECE


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, number: int, pieces: list[int]) -> None:
    import numpy as np

    buffer = bytearray(_BLOCK)
    view, words = memoryview(buffer), np.frombuffer(buffer, dtype="<u8").reshape(-1, _PAGE // 8)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        value, at, end = 0, number * PIECE, (number + 1) * PIECE
        while at < end and (count := _fill(descriptor, view, at)):
            pages = -(-count // _PAGE)
            view[count : pages * _PAGE] = bytes(pages * _PAGE - count)
            value, at = zlib.crc32(words[:pages].sum(axis=1, dtype="<u8").tobytes(), value), at + count
        pieces[number] = value
    finally:
        os.close(descriptor)


def _fill(descriptor: int, view: memoryview, at: int) -> int:
    """Reads a whole block, or what is left of the file: a page must not be summed in two parts."""
    filled = 0
    while filled < len(view) and (count := os.preadv(descriptor, [view[filled:]], at + filled)):
        filled += count
    return filled


def _together(jobs: Sequence[Callable[[], None]], *, waiting: bool) -> None:
    """Runs all jobs, this thread among the workers. Raises what the first that failed raised.

    No pool of concurrent.futures: checkpoints are completed in atexit handlers too, where it takes nothing any more.
    """
    left, turn, failed = iter(jobs), threading.Lock(), list[BaseException]()

    def work() -> None:
        while not failed:
            with turn:
                job = next(left, None)
            if job is None:
                return
            try:
                job()
            except BaseException as error:
                failed.append(error)

    # One more where some only wait for the disk.
    wanted = min(_MOST_THREADS, _cores() + waiting, len(jobs)) - 1
    threads = []
    for _ in range(wanted):
        thread = threading.Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending, or there may be no more threads
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
