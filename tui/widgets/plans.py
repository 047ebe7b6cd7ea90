"""The table of plans: best first, the Pareto front marked, losers dimmed with their reason."""

import re
from dataclasses import replace

from rich.text import Text
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from planner.plan import Candidate, PlanDocument, StrategyChoice
from reports import words
from tui import figures
from tui.palette import VERDICT_COLOURS
from tui.scene import Scene

_COLUMNS = ("", "plan", "batch", "ckpt", "GiB", "free", "step", "tok/s/GPU", "", "why not")


class PlansTable(DataTable[Text]):
    """Rows are chosen with Enter or a click."""

    class Chosen(Message):
        """A plan that the picture shall show."""

        def __init__(self, candidate: Candidate) -> None:
            super().__init__()
            self.candidate = candidate

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._rows: list[figures.Row] = []
        self.sort_by = figures.SORTS[0]
        self.filter_text = ""
        self.losers = True
        self._scene: Scene | None = None
        self._drawn: tuple[PlanDocument | None, str, str, bool] | None = None

    def on_mount(self) -> None:
        for at, name in enumerate(_COLUMNS):
            self.add_column(name, key=str(at))

    def show(self, scene: Scene) -> None:
        """Rows of the plans that were found."""
        self._scene = scene
        candidate = scene.candidate
        focused = None if candidate is None else candidate.strategy
        key = (scene.found, self.sort_by, self.filter_text, self.losers)
        if not self.columns:
            return
        if self._drawn is not None and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            self._mark(focused, scene)
            return
        self._drawn = key
        rows = (
            []
            if scene.found is None
            else figures.rows(
                scene.found, focused=focused, sort=self.sort_by, text=self.filter_text, losers=self.losers
            )
        )
        self._fill(rows, scene)

    def _mark(self, focused: StrategyChoice | None, scene: Scene) -> None:
        """The same rows: only where the picture is may have changed, and only that is drawn."""
        for at, row in enumerate(self._rows):
            here = focused is not None and figures.same_choice(row.candidate.strategy, focused)
            if here != row.focused:
                self._rows[at] = replace(row, focused=here)
                for column, cell in enumerate(_cells(self._rows[at], scene)[:2]):
                    self.update_cell_at(Coordinate(at, column), cell)

    def redraw(self) -> None:
        """After sorting or filtering."""
        if self._scene is not None:
            self.show(self._scene)

    @property
    def shown(self) -> list[figures.Row]:
        return self._rows

    def _fill(self, rows: list[figures.Row], scene: Scene) -> None:
        before = self._rows[self.cursor_row].candidate if 0 <= self.cursor_row < len(self._rows) else None
        self._rows = rows
        self.clear()
        for row in rows:
            self.add_row(*_cells(row, scene))
        at = next((i for i, row in enumerate(rows) if before is not None and row.candidate == before), None)
        if at is None:
            at = next((i for i, row in enumerate(rows) if row.focused), 0)
        if rows:
            self.move_cursor(row=at, scroll=True)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter or a click on a row."""
        event.stop()
        if 0 <= event.cursor_row < len(self._rows):
            self.post_message(self.Chosen(self._rows[event.cursor_row].candidate))


def _cells(row: figures.Row, scene: Scene) -> list[Text]:
    lost = row.candidate.verdict == "no"
    style = "dim" if lost else "bold" if row.focused else ""
    star, here = ("*", ">") if scene.ascii_only else ("◆", "▶")
    mark = Text((here if row.focused else " ") + (star if row.front else " "))
    style = style if lost else ""
    right = [Text(text, style=style, justify="right") for text in (row.used, row.free, row.step, row.rate)]
    return [
        mark,
        Text(scene.safe(row.title), style=style or ("bold" if row.focused else "")),
        Text(scene.safe(row.batch), style=style),
        Text(row.checkpointing, style=style),
        *right,
        Text(row.verdict, style=VERDICT_COLOURS[row.candidate.verdict] + (" dim" if lost else " bold")),
        Text(scene.safe(_why(row)), style="dim"),
    ]


def _why(row: figures.Row) -> str:
    """Without the plan's own name, which stands before it."""
    reason = row.reason.removeprefix(words.STRATEGIES.get(row.candidate.strategy.name, "")).lstrip()
    return re.sub(r"^with \w+ offload ", "", reason)
