"""What goes on in the background, why the plan under the cursor lost, or the command that makes this picture."""

from rich.text import Text

from gpu_plan.reports.plan.command import command_lines
from gpu_plan.tui.picture.lines import shortened
from gpu_plan.tui.picture.palette import BAD
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.widgets.drawn import Drawn

ROOMY = 30
"""Rows from which on a long command gets a second line."""


class StatusView(Drawn):
    """What the planner does, else a reason, else the exact command."""

    def lines(self, scene: Scene, width: int) -> Text:
        command = scene.safe(scene.state.command if scene.state.following else scene.state.focus_command)
        wanted = command_lines(command, width - 4)
        lines = wanted if len(wanted) <= 2 and self.screen.size.height >= ROOMY else [command]
        told = self._told(scene, width)
        if told is not None:
            # As high as the command: else all above it moves with each key, there and back.
            return Text("\n").join([told, *(Text(" ") for _ in lines[1:])])
        shown = [shortened(line, width - 4, scene.ascii_only) for line in lines]
        return Text("\n").join(
            Text(" $ " if at == 0 else "   ", style="dim") + Text(line) for at, line in enumerate(shown)
        )

    def _told(self, scene: Scene, width: int) -> Text | None:
        """What is to be told in place of the command."""
        if scene.notice:
            return Text(" " + shortened(scene.safe(scene.notice), width - 2, scene.ascii_only), style=f"bold {BAD}")
        if scene.busy:
            return Text(f" {scene.busy} ...", style="bold italic")
        if scene.pointed:
            return Text(" " + shortened(scene.safe(scene.pointed), width - 2, scene.ascii_only), style="italic")
        return None
