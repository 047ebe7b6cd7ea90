"""What every view of a search that runs does, and which one is chosen."""

import argparse
import os
import sys
import time
from types import TracebackType

from gpu_plan.planner.search.underway.watch import Watcher


class View(Watcher):
    """Shows nothing. Used as a context manager: what is shown is wiped, or ended, when it is left."""

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tracing(self, text: str) -> None:
        """Something slow begins: torch is imported, a script is executed."""


def view_for(args: argparse.Namespace) -> View:
    """Nothing with --quiet, a picture on a terminal that can move its cursor, else lines."""
    if args.quiet:
        return View()
    if sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        from gpu_plan.commands.job.progress.screen import ScreenView

        return ScreenView(clock=time.monotonic, ascii_only=args.ascii)
    from gpu_plan.commands.job.progress.lines import LinesView

    return LinesView(write=_line, clock=time.monotonic)


def _line(text: str) -> None:
    from gpu_plan.planner.visible import visible

    print(visible(f"plan: {text}"), file=sys.stderr, flush=True)
