"""What else could be done: each change with its plan and figures. Enter takes it, Esc goes back."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.text import Text
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable

from gpu_plan.planner.plan.document import Alternative, PlanDocument
from gpu_plan.planner.search.changes import ANOTHER_STRATEGY
from gpu_plan.reports.plan import words
from gpu_plan.tui.choices import FLAGS
from gpu_plan.tui.engine.messages import Reply
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel
from gpu_plan.tui.state import State

_COLUMNS = ("change", "plan", "what it comes to")
_LEAST = 12
"""Cells of a column at least."""


class Taken(Message):
    """A change was chosen."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


class OtherwiseScreen(Panel):
    """Changes of the job that was asked for, the most useful first."""

    help_words = "Enter takes a change, as if its option had been given; Backspace takes it back. Esc leaves."
    title_words = "What else you could do ..."

    def __init__(self, scene: Scene, ask: Callable[[Callable[[Reply], None]], None]) -> None:
        super().__init__()
        self._scene, self._ask = scene, ask
        self._found: Sequence[Alternative] = ()

    def body(self) -> list[Widget]:
        return [DataTable[Text](id="otherwise", cursor_type="row", cell_padding=1)]

    def on_mount(self) -> None:
        self.say_title("What else you could do: evaluating ...")
        self._ask(self._take)

    def _take(self, reply: Reply) -> None:
        if not self.query("#otherwise"):
            return  # It was left meanwhile.
        if reply.document is None:
            self.say_title(f"What else you could do: {self._scene.safe(reply.text)}")
            return
        self._fill(reply.document)

    def _fill(self, document: PlanDocument) -> None:
        table = self.query_one("#otherwise", DataTable)
        self._found = document.alternatives
        rows = [
            (one.change, one.plan, figures)
            for one, (_, figures) in zip(document.alternatives, words.alternative_rows(document), strict=True)
        ]
        room = table.size.width - 2 * len(_COLUMNS)
        for name, width in zip(_COLUMNS, _widths(rows, room), strict=True):
            table.add_column(name, width=width)
        for row in rows:
            table.add_row(*(Text(self._scene.safe(cell)) for cell in row), height=None)
        untraced = words.untraced_words(document)
        none = "" if self._found else ": nothing that was tried gains anything"
        self.say_title(f"What else you could do{none}" + (f"; {self._scene.safe(untraced)}" if untraced else ""))
        table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter or a click."""
        event.stop()
        if 0 <= event.cursor_row < len(self._found):
            changed = with_change(self._scene.state, self._found[event.cursor_row].change)
            if changed is None:
                self.say_title(
                    f"{self._found[event.cursor_row].change}: on the command line alone, not in the explorer"
                )
                return
            self.dismiss(None)
            self.app.post_message(Taken(changed))


def _widths(rows: Sequence[tuple[str, ...]], room: int) -> list[int]:
    """Cells of each column: none needs more than its longest text, and the figures wrap in what is left."""
    longest = [max(map(len, column), default=0) for column in zip(_COLUMNS, *rows, strict=True)]
    change, plan = (min(length, max(_LEAST, room // 3)) for length in longest[:2])
    return [change, plan, max(_LEAST, min(longest[2], room - change - plan))]


def with_change(state: State, change: str) -> State | None:
    """The search with what an alternative names: options, settings or other GPUs; None where the explorer has no such
    option."""
    if change == ANOTHER_STRATEGY:
        return _anew(state.with_option("strategy", None).with_option("offload", None))
    if not change.startswith("--"):
        return _anew(state.with_gpus(change))
    pieces = shlex.split(change)
    while pieces:
        name = pieces.pop(0).removeprefix("--")
        if name == "set" and pieces:
            key, _, value = pieces.pop(0).partition("=")
            state = state.with_setting(key, value)
        elif name in state.menu.choices and name in FLAGS:
            state = state.with_option(name, "true")
        elif name in state.menu.choices and pieces:
            state = state.with_option(name, pieces.pop(0))
        else:
            return None
    return _anew(state)


def _anew(state: State) -> State:
    return replace(state, focus=(), focus_settings=(), following=True)
