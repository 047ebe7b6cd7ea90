"""A widget that is a function of the scene."""

from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import RenderResult
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpu_plan.tui.picture.scene import Scene


class Drawn(Widget):
    """Draws `lines` anew whenever it is shown another scene; on the screen only those that are others change."""

    scene: Scene | None = None
    _kept: tuple[tuple[Scene, int, int, Size], Text] | None = None
    _rows: tuple[Text, list[list[Segment]]] | None = None
    _strips: dict[int, tuple[list[Segment], tuple[Style, int], Strip]]
    _ground: Style
    _least: int = 0
    """Rows that it takes whatever there is to say."""

    def on_mount(self) -> None:
        self._strips = {}
        self._ground = self.rich_style

    def show(self, scene: Scene) -> None:
        """The scene to draw from now on; its height may change with it."""
        # What has no lines has no size: it is as wide as what holds it.
        width = self.size.width or self.container_size.width
        before = self._rows_of(self._lines(width))
        taken = max(len(before), self._least)
        self.scene = scene
        after = self._rows_of(self._lines(width))
        # Nothing moves up for the moment until the picture is complete, most often to move down again.
        self._least = taken if scene.picture is not None and not scene.picture.exact else 0
        if max(len(after), self._least) != taken:
            # Where its height is its own matter, nothing else moves.
            height = self.styles.height
            self.refresh(layout=height is None or height.is_auto)
            return
        changed = [y for y, (old, new) in enumerate(zip_longest(before, after)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def lines(self, scene: Scene, width: int) -> Text:
        """What is drawn at `width`."""
        raise NotImplementedError

    def _lines(self, width: int) -> Text:
        if self.scene is None or width <= 0:
            return Text("")
        # Textual asks for height and content apart, and more than once for the same scene.
        key = (self.scene, width, self.size.height, self.screen.size)
        if self._kept is None or key[0] is not self._kept[0][0] or key[1:] != self._kept[0][1:]:
            self._kept = (key, self.lines(self.scene, width))
        return self._kept[1]

    def _rows_of(self, text: Text) -> list[list[Segment]]:
        """`text` line by line, none where there is nothing to say."""
        if self._rows is None or self._rows[0] is not text:
            lines = [*Segment.split_lines(text.render(self.app.console, end="\n"))] if text.plain else []
            self._rows = (text, lines)
        return self._rows[1]

    def render(self) -> RenderResult:
        """All of it, for what Textual selects and copies."""
        return self._lines(self.size.width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines inside `crop`, all on the same ground."""
        self._ground = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line; Textual's own way from text to cells takes several times as long."""
        if self.text_selection is not None:
            return super().render_line(y)
        rows, style = self._rows_of(self._lines(self.size.width)), self._ground
        row = rows[y] if y < len(rows) else []
        kept = self._strips.get(y)
        if kept is None or kept[0] != row or kept[1] != (style, self.size.width):
            segments = [*Segment.apply_style(row, style)]
            strip = Strip(segments).adjust_cell_length(self.size.width, style).apply_offsets(0, y)
            self._strips[y] = kept = (row, (style, self.size.width), strip)
        return kept[2]

    @property
    def rows(self) -> int:
        """How many lines it takes now."""
        return self._height(self.size.width or self.container_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._height(width)

    def _height(self, width: int) -> int:
        return max(len(self._rows_of(self._lines(width))), self._least)
