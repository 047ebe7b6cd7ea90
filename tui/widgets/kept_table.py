"""A table whose rows are drawn once, until they are others."""

from collections import OrderedDict

from rich.style import Style
from rich.text import Text
from textual.coordinate import Coordinate
from textual.strip import Strip
from textual.widgets import DataTable

_KEPT = 1024


class KeptTable(DataTable[Text]):
    """Rows of one line each, chosen whole. Textual draws every row anew when a single cell is another."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._generation = 0
        self._versions: dict[int, int] = {}
        self._drawn_lines: OrderedDict[tuple[object, ...], Strip] = OrderedDict()

    def clear(self, columns: bool = False) -> "KeptTable":
        """No rows."""
        self._generation += 1
        super().clear(columns)
        return self

    def update_cell_at(self, coordinate: Coordinate, value: Text, *, update_width: bool = False) -> None:
        """Another cell: of the other rows nothing is drawn anew."""
        self._versions[coordinate.row] = self._versions.get(coordinate.row, 0) + 1
        super().update_cell_at(coordinate, value, update_width=update_width)

    def _render_line(self, y: int, x1: int, x2: int, base_style: Style) -> Strip:
        row = y - self.header_height if self.show_header else y
        drawn_as = (
            self._generation, y, self._versions.get(row), row == self.cursor_row, row == self.hover_row,
            self.show_cursor, self._show_hover_cursor, self._pseudo_class_state, x1, x2, self.size.width, base_style,
            tuple(column.get_render_width(self) for column in self.ordered_columns), self.row_count,
        )  # fmt: skip
        kept = self._drawn_lines.get(drawn_as)
        if kept is None:
            kept = self._drawn_lines[drawn_as] = super()._render_line(y, x1, x2, base_style)
            while len(self._drawn_lines) > _KEPT:
                self._drawn_lines.popitem(last=False)
        return kept
