"""RAM of a node as bars against what the node has, or in words where that is not known. Pure."""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.reports.plan import words
from gpu_plan.tui.picture.palette import BAD, COLOURS
from gpu_plan.tui.picture.scene import Scene

_LABEL_WIDTH = 13
_LEAST_BAR = 16
_MOMENTS = {"load": "RAM load", "step": "RAM steps", "save": "RAM save", "weights": "RAM weights"}
_COLOURS = {"load": "parameters", "step": "optimizer_state", "save": "temporary", "weights": "parameters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """RAM of one node at one moment; bytes."""

    name: str
    """`load`, `step`, `save`, or `weights` of a generation."""
    bytes: int
    low: int
    high: int
    basis: str


def moments(candidate: Candidate) -> list[Moment]:
    """Those at which a node's RAM is taken; none where it is not known or next to nothing."""
    memory, figures = candidate.memory, candidate.inference
    if memory is not None and memory.host is not None:
        return [
            Moment(name=term.name, bytes=term.bytes, low=term.low_bytes, high=term.high_bytes, basis=term.basis)
            for term in memory.host.terms
            if term.high_bytes
        ]
    if figures is not None and figures.cpu_bytes:
        size = figures.cpu_bytes
        return [Moment(name="weights", bytes=size, low=size, high=size, basis="traced")]
    return []


def host_text(scene: Scene, width: int, *, every: bool) -> Text:
    """A bar for each moment (`every`) or for the worst one; words where the node's RAM is not known."""
    candidate, document = scene.candidate, scene.document
    if candidate is None or candidate.memory is None or document is None:
        return Text("")
    found, ram = moments(candidate), document.cluster.get("host_ram_bytes_per_node")
    if document.cluster.get("gpu") == "cpu":
        return _words(scene, ["the device's memory is the host's own"], width)
    if not isinstance(ram, int) or not found:
        return _words(scene, _in_words(document, candidate, found), width)
    shown = found if every else [max(found, key=lambda moment: moment.high)]
    figures = [_figure(moment, ram, width) for moment in shown]
    cells = max(_LEAST_BAR, width - _LABEL_WIDTH - max(map(len, figures)) - 2)
    scale = max(ram, *(moment.high for moment in shown))
    return Text("\n").join(
        _bar(scene, moment, ram, cells, scale).append(
            " " + scene.safe(figure), style=f"bold {BAD}" if moment.low > ram else ""
        )
        for moment, figure in zip(shown, figures, strict=True)
    )


def _figure(moment: Moment, ram: int, width: int) -> str:
    """`60.2 of 83.5 GiB`, with its interval where there is room for it."""
    figure = f"{words.gib(moment.bytes)} of {words.gib(ram)} GiB"
    if moment.low == moment.high:
        return figure
    longer = f"{figure} ({words.gib(moment.low)} to {words.gib(moment.high)}, {moment.basis})"
    return longer if width >= _LABEL_WIDTH + len(longer) + _LEAST_BAR + 2 else figure


def _in_words(document: PlanDocument, candidate: Candidate, found: list[Moment]) -> list[str]:
    assert candidate.memory is not None
    if candidate.memory.host is not None:
        return words.host_words(document, candidate.memory, explain=True)
    return [f"Host RAM: {words.gib(moment.bytes)} GiB per node for {moment.name}" for moment in found]


def _words(scene: Scene, pieces: list[str], width: int) -> Text:
    dot = " - " if scene.ascii_only else " · "
    line = ""
    for piece in map(scene.safe, pieces):
        longer = line + dot + piece if line else piece
        if cell_len(longer) > width - 2:
            break
        line = longer
    return Text(" " + line if line else "")


def _bar(scene: Scene, moment: Moment, ram: int, cells: int, scale: int) -> Text:
    """` RAM load    ████▒▒░░░┤`: in scale with the node's RAM, what lies beyond it in red."""
    capacity, used = round(ram * cells / scale), round(moment.bytes * cells / scale)
    maybe = max(0, round(moment.high * cells / scale) - used)
    text = Text(f" {_MOMENTS.get(moment.name, moment.name):<{_LABEL_WIDTH - 2}} ", style="dim")
    colour = COLOURS[_COLOURS.get(moment.name, "other")]
    full, soft, free, end = ("#", "+", ".", "|") if scene.ascii_only else ("█", "▒", "░", "┤")
    for cell in range(cells):
        glyph = full if cell < used else soft if cell < used + maybe else free if cell < capacity else " "
        text.append(glyph, style=BAD if cell >= capacity else colour if cell < used else "dim")
        if cell == capacity - 1:
            text.append(end, style="dim")
    return text
