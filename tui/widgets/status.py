"""One line: what goes on in the background, or the command that makes this picture."""

from rich.text import Text

from tui.drawing import shortened
from tui.scene import Scene
from tui.widgets.drawn import Drawn


class StatusView(Drawn):
    """What the planner does, else the exact command."""

    def lines(self, scene: Scene, width: int) -> Text:
        if scene.busy:
            return Text(f" {scene.busy} ...", style="bold italic")
        command = scene.state.command if scene.state.following else scene.state.focus_command
        return Text(" $ ", style="dim") + Text(shortened(scene.safe(command), width - 4, scene.ascii_only))
