"""The picture: title, options, verdict, memory, host RAM, timeline."""

from rich.text import Text

from gpu_plan.tui.picture import lines as drawing
from gpu_plan.tui.picture.host import host_text
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.picture.timeline import timeline_text
from gpu_plan.tui.widgets.drawn import Drawn

TALL = 32
"""Rows from which on bars are thick and every moment has its own."""

ROOMY = 24
"""Rows from which on ranks beside the worst one are drawn."""


class TitleView(Drawn):
    """Model and machines."""

    def lines(self, scene: Scene, width: int) -> Text:
        return drawing.title_text(scene, width)


class OptionsView(Drawn):
    """Every option with its key; flowing, or in a column where it is narrow by layout."""

    def lines(self, scene: Scene, width: int) -> Text:
        return drawing.options_text(scene, width, column=self.screen.has_class("-wide"))


class VerdictView(Drawn):
    """FITS, TIGHT or OOM."""

    def lines(self, scene: Scene, width: int) -> Text:
        return drawing.verdict_text(scene, width)


class MemoryView(Drawn):
    """The stacked bars."""

    def lines(self, scene: Scene, width: int) -> Text:
        height = self.screen.size.height
        return drawing.memory_text(scene, width, thick=height >= TALL, every=height >= ROOMY)


class HostView(Drawn):
    """RAM of a node."""

    def lines(self, scene: Scene, width: int) -> Text:
        return host_text(scene, width, every=self.screen.size.height >= TALL)


class TimelineView(Drawn):
    """The step's memory over time."""

    def lines(self, scene: Scene, width: int) -> Text:
        memory = None if scene.candidate is None else scene.candidate.memory
        if scene.picture is None or scene.picture.columns is None or memory is None:
            return Text("")
        return timeline_text(
            scene.picture.columns,
            width,
            max(3, self.size.height),
            capacity=memory.capacity_bytes - memory.outside_allocator.total,
            letters=scene.letters,
            ascii_only=scene.ascii_only,
        )
