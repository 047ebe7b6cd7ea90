"""Which of the user's own lines is running: what a tensor's origin is called in a report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class Origins:
    """Names lines of the script and of the files beside it, seen from the innermost frame outwards."""

    def __init__(self, script: Path) -> None:
        self._folder = f"{script.parent}/"
        self._names: dict[str, str] = {}

    def current(self) -> str:
        """`train.py:88` for the innermost line of the user's own files; empty where none is on the stack.

        The line that calls `backward` names nothing: what it sets off belongs to the forward's operators.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == "watched_backward":
                return ""
            name = self._name(frame.f_code.co_filename)
            if name:
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _name(self, path: str) -> str:
        found = self._names.get(path)
        if found is None:
            own = path.startswith(self._folder) and "site-packages" not in path
            found = self._names[path] = path.removeprefix(self._folder) if own else ""
        return found
