"""Why so much: category, module, tensor, with bytes, basis and origin. Enter goes deeper, Esc back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget
from textual.widgets import DataTable

from gpu_plan.planner.plan.document import TensorLine
from gpu_plan.planner.units import GIB, MIB, format_bytes
from gpu_plan.tui.picture.figures import Branch, drill
from gpu_plan.tui.picture.palette import COLOURS
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel

if TYPE_CHECKING:
    from gpu_plan.tui.session import Session

_HEADS = (
    ("share", "category", "tensors", "basis"),
    ("share", "module", "tensors", "basis"),
    ("share", "made by", "tensors", "basis", "shape and origin"),
)


class DrillScreen(Panel):
    """Three levels of what stands at the peak."""

    help_words = "Enter goes one level deeper: category, module, tensor. Esc goes back. Basis: what a figure rests on."
    title_words = "At the peak ..."

    def __init__(self, scene: Scene, lines: Sequence[TensorLine] | None) -> None:
        super().__init__()
        self._scene, self._lines = scene, lines
        self._path: list[str] = []
        self._branches: list[Branch] = []

    def body(self) -> list[Widget]:
        return [DataTable[Text](id="drill", cursor_type="row", cell_padding=1)]

    def on_mount(self) -> None:
        self._fill()

    def tell(self, session: "Session") -> None:
        """The tensors may have come."""
        if self._lines is None and session.tensors is not None:
            self._lines = session.tensors
            if self.query("#drill"):
                self._fill()

    def _fill(self, at: str | None = None) -> None:
        table = self.query_one("#drill", DataTable)
        table.clear(columns=True)
        if self._lines is None:
            self.say_title("At the peak: naming every tensor ...")
            return
        self._branches = drill(self._lines, *self._path)
        whole = sum(branch.bytes for branch in self._branches)
        unit, name = (GIB, "GiB") if whole >= GIB else (MIB, "MiB")
        table.add_columns(name, *_HEADS[len(self._path)])
        for branch in self._branches:
            table.add_row(*self._cells(branch, unit))
        where = " > ".join(["At the peak", *(self._named(name) for name in self._path)])
        self.say_title(f"{where}: {format_bytes(whole)}")
        names = [branch.name for branch in self._branches]
        if at in names:
            table.move_cursor(row=names.index(at))
        table.focus()

    def _named(self, name: str) -> str:
        return self._scene.safe(name.replace("_", " ") if name in COLOURS else name or "(the model itself)")

    def _cells(self, branch: Branch, unit: int) -> list[Text]:
        name = Text()
        if branch.name in COLOURS and not self._path and not self._scene.letters:
            name.append("■ ", style=COLOURS[branch.name])
        name.append(self._named(branch.name))
        cells = [
            Text(f"{branch.bytes / unit:.3f}", justify="right"),
            Text(f"{branch.share:.1%}", justify="right"),
            name,
            Text(f"{branch.count:,}", justify="right"),
            Text(branch.basis),
        ]
        if len(self._path) == 2:
            cells.append(Text(self._scene.safe(branch.detail), style="dim"))
        return cells

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """One level deeper."""
        event.stop()
        if len(self._path) < 2 and event.cursor_row < len(self._branches):
            self._path.append(self._branches[event.cursor_row].name)
            self._fill()

    def action_back(self) -> None:
        """One level up, in the end back to the picture."""
        if self._path:
            self._fill(at=self._path.pop())
        else:
            self.dismiss(None)
