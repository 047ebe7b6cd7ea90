"""Which of the user's own lines is running: what a tensor's origin is called in a report."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_ENDS = ("watched_backward", "run_step")
"""Functions of capture/watch/step/recording.py and trace/step.py beyond which nothing is the model's."""


class Origins:
    """Names lines of the user's files below `home` and `root`, seen from the innermost frame outwards.

    Names are relative to `home`, a script's folder or the one that a factory is imported from.
    """

    def __init__(self, home: Path, root: Path | None = None) -> None:
        self._home = str(home)
        self._folders = tuple({f"{folder}{os.sep}" for folder in (home, root or home)})
        self._names: dict[str, str] = {}

    def current(self) -> str:
        """`train.py:88` for the innermost line of the user's own files; empty where none is on the stack.

        The line that calls `backward` names nothing: what it sets off belongs to the forward's operators. Neither
        does what stands around a factory's step.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name in _ENDS and frame.f_code.co_filename.startswith(_OURS):
                return ""
            name = self._name(frame.f_code.co_filename)
            if name:
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _name(self, path: str) -> str:
        found = self._names.get(path)
        if found is None:
            # Built-in frames are called `<frozen ...>` or `<string>`: they lie nowhere.
            own = path.startswith(self._folders) and "site-packages" not in path and not path.startswith(_OURS)
            found = self._names[path] = os.path.relpath(path, self._home).replace(os.sep, "/") if own else ""
        return found
