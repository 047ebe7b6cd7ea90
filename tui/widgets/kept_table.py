"""A table whose rows are drawn once, until they are others."""

from collections import OrderedDict
from collections.abc import Iterable

from rich.style import Style
from rich.text import Text
from textual.coordinate import Coordinate
from textual.strip import Strip
from textual.widgets import DataTable
from textual.widgets.data_table import RowKey

_KEPT = 1024


class KeptTable(DataTable[Text]):
    """Rows of one line each, chosen whole. Textual draws every row anew when a single cell is another, and when they
    are filled in again."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._contents: dict[int, tuple[object, ...]] = {}
        """What the rows say, as far as that was asked for."""
        self._drawn_lines: OrderedDict[tuple[object, ...], Strip] = OrderedDict()

    def clear(self, columns: bool = False) -> "KeptTable":
        """No rows."""
        self._contents.clear()
        super().clear(columns)
        return self

    def update_cell_at(self, coordinate: Coordinate, value: Text, *, update_width: bool = False) -> None:
        """Another cell: of the other rows nothing is drawn anew."""
        self._contents.pop(coordinate.row, None)
        super().update_cell_at(coordinate, value, update_width=update_width)

    def notify_style_update(self) -> None:
        """Other colours."""
        self._drawn_lines.clear()
        super().notify_style_update()

    def _clear_caches(self) -> None:
        """Links of Textual's caches hold each other: once they are let go of, only a search for garbage would find
        them, tens of thousands after a few rows."""
        for cache in (self._row_render_cache, self._cell_render_cache, self._row_renderable_cache, self._line_cache):
            for link in getattr(cache, "_cache", {}).values():
                if isinstance(link, list):
                    link.clear()
        super()._clear_caches()

    def _update_dimensions(self, new_rows: Iterable[RowKey]) -> None:
        """A cell is one line of text, as wide as it is long: Textual would draw it to see that."""
        columns = self.ordered_columns
        for key in new_rows:
            for column, cell in zip(columns, self._data.get(key, {}).values(), strict=False):
                column.content_width = max(column.content_width, cell.cell_len)
        super()._update_dimensions(())

    def _content(self, row: int) -> tuple[object, ...]:
        """What a row says; the head, which is row -1, too, and nothing behind the last row."""
        if row >= self.row_count:
            return ()
        if row not in self._contents:
            cells = [column.label for column in self.ordered_columns] if row < 0 else self.get_row_at(row)
            self._contents[row] = tuple((cell.plain, cell.style, cell.justify, *cell.spans) for cell in cells)
        return self._contents[row]

    def _render_line(self, y: int, x1: int, x2: int, base_style: Style) -> Strip:
        row = y - self.header_height if self.show_header else y
        drawn_as = (
            self._content(row), y, row == self.cursor_row, row == self.hover_row,
            self.show_cursor, self._show_hover_cursor, self._pseudo_class_state, x1, x2, self.size.width, base_style,
            tuple(column.get_render_width(self) for column in self.ordered_columns), row < self.row_count,
        )  # fmt: skip
        kept = self._drawn_lines.get(drawn_as)
        if kept is None:
            kept = self._drawn_lines[drawn_as] = super()._render_line(y, x1, x2, base_style)
            while len(self._drawn_lines) > _KEPT:
                self._drawn_lines.popitem(last=False)
        return kept
