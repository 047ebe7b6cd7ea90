"""Shows a run while it runs: on a terminal with figures that stand, elsewhere in plain lines (I/O)."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.supervise.events import Event


@contextlib.contextmanager
def live(out: TextIO | None = None, err: TextIO | None = None) -> Iterator[Callable[[Event], None]]:
    """What to give to `supervise(observe=...)`. The script's output goes to `out`, ours and its errors to `err`.

    NO_COLOR keeps the standing lines without colours; TERM=dumb and anything that is no terminal get plain lines.
    """
    out, err = out or sys.stdout, err or sys.stderr
    if not err.isatty() or os.environ.get("TERM", "") in ("dumb", ""):
        yield PlainView(out, err)
        return
    from gpu_plan.executor.live.screen import ScreenView

    with ScreenView(out, err) as view:
        yield view
