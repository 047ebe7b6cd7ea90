"""The explorer's own screen: the picture, the plans, what goes on."""

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Input

from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.widgets.drawn import Drawn
from gpu_plan.tui.widgets.picture import HostView, MemoryView, OptionsView, TimelineView, TitleView, VerdictView
from gpu_plan.tui.widgets.plans import PlansTable
from gpu_plan.tui.widgets.status import StatusView

_TIMELINE = ((50, 18), (30, 9), (0, 5))
"""Rows of the terminal from which on the timeline has so many."""
_LEAST = 3
_AROUND = 7
"""Title, status, footer, and the table with three plans."""


class Main(Vertical):
    """All that shows the scene."""

    _timeline = -1

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
        self._fit_timeline()
        self.query_one(PlansTable).show(scene)
        self.query_one("#picture").set_class(scene.stale, "-stale")

    def _fit_timeline(self) -> None:
        """As high as the terminal allows, less where else the table of plans would be out of sight."""
        height = self.screen.size.height
        above = [self.query_one(f"#{name}", Drawn) for name in ("verdict", "memory", "host")]
        if not self.screen.has_class("-wide"):
            above.append(self.query_one("#options", Drawn))
        full = next(rows for least, rows in _TIMELINE if height >= least)
        room = height - _AROUND - sum(view.rows for view in above)
        wanted = full if room >= full else room if room >= _LEAST else 0
        if wanted != self._timeline:
            self._timeline = wanted
            timeline = self.query_one("#timeline", TimelineView)
            timeline.display = wanted > 0
            timeline.styles.height = wanted
