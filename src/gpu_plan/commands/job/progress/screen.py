"""A search that runs, on a terminal: what model states decide, a table that grows, a bar; wiped at the end (I/O)."""

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from gpu_plan.commands.job.progress.view import View
from gpu_plan.commands.job.progress.words import Pace, model_words, states_words
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from gpu_plan.planner.model.spec import ModelSpec
    from gpu_plan.planner.search.judgement import Judgement

_AFTER_SECONDS = 0.5
"""What is done sooner needs no picture."""
_ROWS = 6


class ScreenView(View):
    """Drawn once something slow begins, or half a second has passed."""

    def __init__(self, *, clock: Callable[[], float], ascii_only: bool = False) -> None:
        self._pace, self._ascii_only = Pace(clock), ascii_only
        self._live: Live | None = None
        self._head: list[str] = []
        self._decided: Sequence[Judgement] = ()
        self._now = ""
        self._place = 0
        self._found: list[Judgement] = []
        self._lost = 0

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tracing(self, text: str) -> None:
        """Named until the first kind is judged."""
        self._now = text
        self._draw(at_once=True)

    def model(self, spec: "ModelSpec") -> None:
        """The first line."""
        self._head.append(model_words(spec))
        self._draw()

    def decided(self, judged: "Sequence[Judgement]") -> None:
        """The lines below it."""
        self._decided = judged
        self._draw()

    def turns(self, words: str, place: int, of: int) -> None:
        """What is done, and how much is left."""
        self._now, self._place, self._pace.of = words, place, of
        self._draw()

    def judged(self, best: "Judgement | None", reason: str | None) -> None:
        """One row more, or one more that does not fit."""
        if best is not None:
            self._found.append(best)
        elif reason is not None:
            self._lost += 1
        self._pace.judged(self._place)
        self._draw()

    def advises(self) -> None:
        """The bar is full."""
        self._now, self._pace.done = "what else could be done", self._pace.of
        self._draw()

    def _draw(self, *, at_once: bool = False) -> None:
        if self._live is None and not at_once and self._pace.seconds <= _AFTER_SECONDS:
            return
        # Made here, not by the thread that draws.
        self._head += states_words(self._decided)
        self._decided = ()
        if self._live is not None:
            self._live.update(self.picture(), refresh=True)
        else:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stderr, highlight=False)
            self._live = Live(
                console=console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                get_renderable=self.picture,
            )
            self._live.start(refresh=True)

    def picture(self) -> "RenderableType":
        """What stands there now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = [Text(visible(line)) for line in self._head]
        if self._found:
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for name in ("", "known so far", "GiB", "samples/s"):
                table.add_column(name, justify="right" if name in ("GiB", "samples/s") else "left")
            for plan in self._best():
                figures = (format_gib(plan.used_so_far), f"{plan.samples_per_second:,.3g}")
                table.add_row(plan.verdict, Text(visible(plan.full_title)), *figures)
            parts.append(table)
        if self._lost:
            parts.append(Text("1 kind does not fit" if self._lost == 1 else f"{self._lost} kinds do not fit"))
        if self._pace.of and not self._ascii_only:
            parts.append(ProgressBar(total=self._pace.of, completed=self._pace.done, width=40))
        parts.append(Text(visible(": ".join(filter(None, (self._pace.words, self._now))))))
        return Group(*parts)

    def _best(self) -> "list[Judgement]":
        """The fastest of those that fit before the tight ones."""
        order = sorted(self._found, key=lambda plan: (plan.verdict != "fits", -plan.samples_per_second))
        return order[:_ROWS]
