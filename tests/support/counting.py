"""Work counted instead of timed: what a call does is the same on every machine, how long it takes is not."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(call: Callable[[], object]) -> int:
    """Bytecodes that Python runs in `call`, those of the functions that it calls included; C code counts as one.

    It is called twice: from 3.12 on, Python makes a function countable when it is first called.
    """
    count = 0

    def follow(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        call()
        count = 0
        call()
    finally:
        sys.settrace(before)
    return count
