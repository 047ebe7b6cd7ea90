"""One step, stream by stream: what computes, what is sent meanwhile, and what is waited for."""

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Static

from gpu_plan.planner.plan.drawn.lanes import Lane, cells, step_seconds
from gpu_plan.reports.durations import seconds
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel

if TYPE_CHECKING:
    from gpu_plan.tui.session import Session

_COLOURS = ("#4e79a7", "#f28e2b", "#b07aa1", "#59a14f", "#76b7b2", "#edc948", "#9c755f", "#e15759")
_SHARE = 6
"""Cells behind a row: how much of the step its stream is busy."""


class Rows(Static):
    """Drawn for the width that there is."""

    def __init__(self, scene: Scene, lanes: tuple[Lane, ...] | None) -> None:
        super().__init__()
        self._scene, self.lanes = scene, lanes

    def on_resize(self, event: Resize) -> None:
        self.draw(event.size.width)

    def draw(self, width: int) -> None:
        """The rows, or that they are being made."""
        waits = Text("putting the step in order ...")
        self.update(waits if self.lanes is None else streams_text(self._scene, self.lanes, width))


class StreamsScreen(Panel):
    """A row for each stream of the step in the picture."""

    help_words = "A row for each stream, a letter for what runs on it, the step from left to right. Esc goes back."
    title_words = "One step, stream by stream"

    def __init__(self, scene: Scene, lanes: tuple[Lane, ...] | None) -> None:
        super().__init__()
        self._rows = Rows(scene, lanes)

    def body(self) -> list[Widget]:
        return [self._rows]

    def tell(self, session: "Session") -> None:
        """The step may have come."""
        if self._rows.lanes is None and session.lanes is not None:
            self._rows.lanes = session.lanes
            self._rows.draw(self._rows.size.width)


def streams_text(scene: Scene, lanes: tuple[Lane, ...], width: int) -> Text:
    """Rows, what their letters mean, and why the devices are not as many times as fast as one."""
    if not lanes:
        return Text("A generation has no streams.")
    marks = _marks(lanes)
    room = max(len(lane.name) for lane in lanes) + 1
    whole = step_seconds(lanes)
    text = Text()
    for lane in lanes:
        text.append(f"{lane.name:<{room}}", style="dim")
        for name in cells(lane, whole, max(20, width - room - _SHARE)):
            letter, colour = marks.get(name, (" ", ""))
            text.append(letter, style=_styled(scene, colour))
        text.append(f" {lane.busy / whole:4.0%}\n")
    text.append("\n")
    for name, (letter, colour) in marks.items():
        text.append(f" {letter} ", style=_styled(scene, colour))
        text.append(f" {scene.safe(name.replace('_', '-'))}  ")
    text.append(f"\n\nthe whole: {seconds(whole)}; at the right how much of it each is busy")
    candidate = scene.candidate
    if candidate is not None and candidate.speed is not None and candidate.speed.scaling is not None:
        text.append(f"\n\n{scene.safe(candidate.speed.scaling)}")
    return text


def _marks(lanes: tuple[Lane, ...]) -> dict[str, tuple[str, str]]:
    """Letter and colour by name; a letter that is taken gives way to the next one of the name."""
    names = dict.fromkeys(span.name for lane in lanes for span in lane.spans)
    found: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names):
        taken = {letter for letter, _ in found.values()}
        free = [letter for letter in name if letter.isalpha() and letter not in taken]
        found[name] = (free[0] if free else "*", _COLOURS[place % len(_COLOURS)])
    return found


def _styled(scene: Scene, colour: str) -> Style:
    return Style(color="#ffffff", bgcolor=colour) if colour and not scene.letters else Style()
