"""A widget that is a function of the scene."""

from rich.text import Text
from textual.app import RenderResult
from textual.geometry import Size
from textual.widget import Widget

from tui.scene import Scene


class Drawn(Widget):
    """Draws `lines` anew whenever it is shown another scene."""

    scene: Scene | None = None
    _kept: tuple[tuple[Scene, int, int, Size], Text] | None = None

    def show(self, scene: Scene) -> None:
        """The scene to draw from now on; its height may change with it."""
        # What has no lines has no size: it is as wide as what holds it.
        width = self.size.width or self.container_size.width
        before = self._lines(width)
        self.scene = scene
        after = self._lines(width)
        if _height(before) != _height(after):
            self.refresh(layout=True)
        elif before != after:
            self.refresh()

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

    def render(self) -> RenderResult:
        return self._lines(self.size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return _height(self._lines(width))


def _height(lines: Text) -> int:
    """Rows; none where there is nothing to say."""
    return lines.plain.count("\n") + 1 if lines.plain else 0
