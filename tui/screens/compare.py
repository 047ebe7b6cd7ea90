"""Every difference between the pinned configuration and the one in the picture."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import DataTable

from gpu_plan.tui.picture.figures import differences
from gpu_plan.tui.picture.palette import BAD, GOOD
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel


class CompareScreen(Panel):
    """Pinned beside now; keys of the picture do not act here: Esc first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "repin", "Pin this one instead")]
    help_words = "Left what was pinned, right the picture; r pins the picture instead. Esc goes back."
    title_words = "Pinned against now"

    def __init__(self, scene: Scene, repin: Callable[[], None]) -> None:
        super().__init__()
        self._scene, self._repin = scene, repin

    def body(self) -> list[Widget]:
        return [DataTable[Text](id="compare", cursor_type="row", cell_padding=1)]

    def on_mount(self) -> None:
        table = self.query_one("#compare", DataTable)
        table.add_columns("", "what", "pinned", "now", "change")
        before, after = self._scene.pinned, self._scene.document
        if before is None or after is None:
            return
        section = ""
        for line in differences(before, after):
            style = "" if line.worse is None else BAD if line.worse else GOOD
            table.add_row(
                Text("" if line.section == section else line.section, style="dim"),
                Text(self._scene.safe(_words(line.name))),
                Text(self._scene.safe(line.before)),
                Text(self._scene.safe(line.after)),
                Text(self._scene.safe(line.change), style=style),
            )
            section = line.section
        if not table.row_count:
            self.say_title("Pinned against now: nothing differs")
        table.focus()

    def action_repin(self) -> None:
        """The configuration in the picture becomes the pinned one."""
        self._repin()
        self.dismiss(None)


def _words(name: str) -> str:
    """`peak_allocated_bytes` as `peak allocated`, `at_peak.kv_cache` as `at peak: kv cache`."""
    group, dot, rest = name.rpartition(".")
    plain = rest.removesuffix("_bytes").replace("_", " ")
    return f"{group.replace('_', ' ')}: {plain}" if dot and group != "parts" else plain
