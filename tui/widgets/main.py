"""The explorer's own screen: the picture, the plans, what goes on."""

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Input

from tui.scene import Scene
from tui.widgets.drawn import Drawn
from tui.widgets.picture import HostView, MemoryView, OptionsView, TimelineView, TitleView, VerdictView
from tui.widgets.plans import PlansTable
from tui.widgets.status import StatusView


class Main(Vertical):
    """All that shows the scene."""

    def compose(self) -> ComposeResult:
        yield TitleView(id="title")
        with Container(id="body"):
            yield OptionsView(id="options")
            with Vertical(id="picture"):
                yield VerdictView(id="verdict")
                yield MemoryView(id="memory")
                yield HostView(id="host")
                yield TimelineView(id="timeline")
        yield PlansTable(id="plans")
        yield Input(id="filter", placeholder="filter plans: words such as zero fits full", compact=True)
        yield StatusView(id="status")

    def show(self, scene: Scene) -> None:
        """Draws another moment."""
        for view in self.query(Drawn):
            view.show(scene)
        self.query_one(PlansTable).show(scene)
        self.query_one("#picture").set_class(scene.stale, "-stale")
