"""Processes that a script starts itself, one for each of its ranks: the first runs here, the others not at all.

torch.multiprocessing.spawn is answered by `answers/distributed`; this is `Process(target=...)` of the standard library,
of `torch.multiprocessing` and of their contexts, as torch's own tutorials have it (intermediate/dist_tuto).
"""

import contextlib
import inspect
import multiprocessing.process
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from gpu_plan.planner.capture.script.texts import NO_PLACE

_OF_RANKS = re.compile(r"init_process_group|MASTER_ADDR|world_size", re.I)
"""What the module of a rank's program says; a process that prepares data says none of it."""


class _Over:
    """What stands in a process's place once its program has run here: `Popen` of multiprocessing, ended well."""

    returncode = 0

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.sentinel = 0

    def poll(self, *_: Any) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def duplicate_for_child(self, handle: int) -> int:
        return handle

    def terminate(self) -> None:
        """There is nothing left to end."""

    kill = interrupt = close = terminate


@contextlib.contextmanager
def ranks_started_here(told: Callable[[], None]) -> Iterator[None]:
    """Within, the first process that the user's own code starts for a rank is a call of its program, and `told` is
    called."""
    start = multiprocessing.process.BaseProcess.start
    run: list[object] = []

    def started(process: Any) -> None:
        target = process._target
        if target is None or not _is_rank(target):
            start(process)
            return
        process._popen, process._sentinel = _Over(), 0
        if not run:
            run.append(target)
            told()
            target(*process._args, **process._kwargs)

    with mock.patch.object(multiprocessing.process.BaseProcess, "start", started):
        yield


def _is_rank(target: Any) -> bool:
    function = getattr(target, "func", target)  # of a partial
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = None if code is None else Path(code.co_filename)
    if file is None or any(part in NO_PLACE for part in file.parts) or file.is_relative_to(sys.base_prefix):
        return False
    try:
        return bool(_OF_RANKS.search(file.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return False
