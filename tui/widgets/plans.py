"""The table of plans: best first, the Pareto front marked, what does not fit dimmed with their reason."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.text import Text
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from gpu_plan.planner.plan.document import Candidate, StrategyChoice
from gpu_plan.reports.plan import words
from gpu_plan.tui.picture import figures
from gpu_plan.tui.picture.lines import cut
from gpu_plan.tui.picture.palette import VERDICT_COLOURS
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.widgets.kept_table import KeptTable

_COLUMNS = (
    ("", ""), ("", ""), ("plan", "strategy"), ("batch", "batch"), ("ckpt", ""), ("GiB", "memory"), ("free", "free"),
    ("step", "step"), ("tok/s/GPU", "speed"), ("why not", ""),
)  # fmt: skip
"""Head of each column, and the order that a click on it makes."""
_SHAPE, _RATE = 4, 8
_MOMENT, _LONGEST = 0.05, 0.5
"""Seconds that rows wait for another picture, each time and in all."""
_ROOMY = 100
"""Columns of a terminal from which on heads are written out."""


class PlansTable(KeptTable):
    """Rows are chosen with Enter or a click."""

    class Chosen(Message):
        """A plan that the picture shall show."""

        def __init__(self, candidate: Candidate) -> None:
            super().__init__()
            self.candidate = candidate

    class Pointed(Message):
        """The cursor stands at another plan."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: list[figures.Row] = []
        self.sort_by, self.backwards = figures.SORTS[0], False
        self._heads: list[str] = []
        self.filter_text = ""
        self.rejected_too = True
        self._scene: Scene | None = None
        self._drawn: tuple[object, ...] | None = None
        self._own: Candidate | None = None
        """The configuration in the picture, where it is not among the plans."""
        self._behind: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When rows are drawn at the latest."""

    def on_mount(self) -> None:
        self._name_columns([name for name, _ in _COLUMNS])

    def _name_columns(self, heads: list[str]) -> None:
        if heads != self._heads:
            self._heads = heads
            self.clear(columns=True)
            for at, name in enumerate(heads):
                self.add_column(Text(name), key=str(at))

    def _wanted_heads(self, scene: Scene) -> list[str]:
        """With a mark at the order that was chosen."""
        down, up = ("v", "^") if scene.ascii_only else ("▼", "▲")
        names = [name for name, _ in _COLUMNS]
        if scene.state.task == "infer":
            names[_SHAPE] = "prefill"
        if self._narrow:
            names[_RATE] = "tok/s"
        orders = [order for _, order in _COLUMNS]
        if self.sort_by in orders:
            names[orders.index(self.sort_by)] += up if self.backwards else down
        return names

    @property
    def _narrow(self) -> bool:
        return self.screen.size.width < _ROOMY

    def sort_with(self, order: str) -> str:
        """Another order, or the same one backwards; gives it in words."""
        self.backwards = order == self.sort_by and not self.backwards
        self.sort_by = order
        self.redraw()
        return f"plans in order of {order}" + (", backwards" if self.backwards else "")

    def show(self, scene: Scene) -> None:
        """Rows of the plans that were found, a moment behind the picture: what a key changes there is drawn first."""
        self._scene, now = scene, time.monotonic()
        if self._behind is None:
            self._due = now + _LONGEST
        else:
            self._behind.cancel()
        wait = max(0.0, min(_MOMENT, self._due - now))
        self._behind = asyncio.get_running_loop().call_later(wait, self._draw)

    @property
    def behind(self) -> bool:
        """Whether the rows are not those of the scene yet."""
        return self._behind is not None

    def _draw(self) -> None:
        """The rows of the scene."""
        if self._behind is not None:
            self._behind.cancel()
            self._behind = None
        scene = self._scene
        if scene is None or not self.columns or not self.is_attached:
            return
        candidate = scene.candidate
        focused = None if candidate is None else candidate.strategy
        if scene.current and not scene.searching:
            self._own = figures.missing(scene.found, candidate)
        elif self._drawn is not None and scene.found is not self._drawn[0]:
            self._own = None
        own = self._own  # That of the state before stands until there is another.
        shape = (self._narrow, self.size.width)
        key = (scene.found, self.sort_by, self.backwards, self.filter_text, self.rejected_too, shape, own)
        if self._drawn is not None and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            self._mark(focused, scene)
            return
        self._drawn = key
        rows = (
            []
            if scene.found is None
            else figures.rows(
                scene.found,
                focused=focused,
                sort=self.sort_by,
                backwards=self.backwards,
                text=self.filter_text,
                rejected_too=self.rejected_too,
                own=own,
            )
        )
        self._fill(rows, scene)

    def _mark(self, focused: StrategyChoice | None, scene: Scene) -> None:
        """The same rows: only where the picture is may have changed, and only that is drawn."""
        for at, row in enumerate(self._rows):
            here = focused is not None and figures.same_choice(row.candidate.strategy, focused)
            if here != row.focused:
                self._rows[at] = replace(row, focused=here)
                for column, cell in enumerate(_cells(self._rows[at], scene, self._narrow)[:3]):
                    self.update_cell_at(Coordinate(at, column), cell)

    def redraw(self) -> None:
        """After sorting or filtering."""
        self._draw()

    @property
    def under_cursor(self) -> figures.Row | None:
        """The row at which the cursor stands."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    @property
    def shown(self) -> list[figures.Row]:
        return self._rows

    def _fill(self, rows: list[figures.Row], scene: Scene) -> None:
        before = self._rows[self.cursor_row].candidate if 0 <= self.cursor_row < len(self._rows) else None
        self._rows = rows
        self._name_columns(self._wanted_heads(scene))
        self.clear()
        every = [_cells(row, scene, self._narrow) for row in rows]
        room = self._room_of_last(every)
        for cells in every:
            self.add_row(*cells[:-1], cut(cells[-1], room, scene.ascii_only))
        at = next((i for i, row in enumerate(rows) if before is not None and row.candidate == before), None)
        if at is None:
            at = next((i for i, row in enumerate(rows) if row.focused), 0)
        if rows:
            self.move_cursor(row=at, scroll=True)

    def _room_of_last(self, rows: Sequence[Sequence[Text]]) -> int:
        """Columns that are left for a reason beside the widest of everything else; the whole of it is told below."""
        widths = [
            max([cell_len(head), *(row[at].cell_len for row in rows)]) for at, head in enumerate(self._heads[:-1])
        ]
        beside = sum(width + 2 * self.cell_padding for width in widths) + 2 * self.cell_padding
        return max(len(self._heads[-1]), self.size.width - self.styles.scrollbar_size_vertical - beside)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The cursor moved, or the rows did."""
        event.stop()
        row = self.under_cursor
        told = row is None or row.focused or not row.reason
        self.post_message(self.Pointed("" if told or row is None else f"{row.title}: {_why(row)}"))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a column's head."""
        event.stop()
        order = _COLUMNS[event.column_index][1]
        if order:
            self.sort_with(order)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter or a click on a row."""
        event.stop()
        if 0 <= event.cursor_row < len(self._rows):
            self.post_message(self.Chosen(self._rows[event.cursor_row].candidate))


def _cells(row: figures.Row, scene: Scene, narrow: bool) -> list[Text]:
    lost = row.candidate.verdict == "no"
    style = "dim" if lost else "bold" if row.focused else ""
    star, here = ("*", ">") if scene.ascii_only else ("◆", "▶")
    mark = Text((here if row.focused else " ") + (star if row.front else " "))
    style = style if lost else ""
    title = row.title.removesuffix(" offload") if narrow else row.title
    right = [Text(text, style=style, justify="right") for text in (row.used, row.free, row.step, row.rate)]
    return [
        mark,
        Text(row.verdict, style=VERDICT_COLOURS[row.candidate.verdict] + (" dim" if lost else " bold")),
        Text(scene.safe(title), style=style or ("bold" if row.focused else "")),
        Text(scene.safe(row.batch), style=style),
        Text(row.checkpointing, style=style),
        *right,
        Text(scene.safe(_why(row)), style="dim"),
    ]


_REST_OF_NAME = re.compile(r"^(with \w+ offload|\d+ replicas|\d+( x \d+ replicas)?) ")


def _why(row: figures.Row) -> str:
    """Without the plan's own name, which stands before it."""
    reason = row.reason.removeprefix(words.strategy_title(row.candidate.strategy.name)).lstrip()
    return _REST_OF_NAME.sub("", reason)
