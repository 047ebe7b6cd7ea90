"""Which view shows a search that runs (I/O)."""

import argparse
import os
import sys
import time

from gpu_plan.commands.job.progress.view import View


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
