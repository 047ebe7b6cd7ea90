"""Lines of the explorer's picture: options, verdict, bars, legend. Pure: values in, styled text out."""

import re
import textwrap
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from gpu_plan.planner.plan.document import Candidate, MemoryFigures, PlanDocument
from gpu_plan.reports.plan import words
from gpu_plan.tui.picture.figures import VERDICTS, Stack, parts_of, same_choice, stack
from gpu_plan.tui.picture.palette import BAD, COLOURS, LETTERS, VERDICT_COLOURS, ink
from gpu_plan.tui.picture.scene import Scene

KEY = "bold #b07aa1"
_ELSE = 3
"""Alternatives that are told where nothing fits, the nearest change among them."""
_MARKS = {"given": "", "tried": "*", "best": "", "script": "", "default": ""}

_ASIDE = re.compile(r" \([^()]*\)")


def shortened(text: str, width: int, ascii_only: bool = False) -> str:
    """`text` in at most `width` cells, its end left out where it must be."""
    if cell_len(text) <= width:
        return text
    mark = "~" if ascii_only else "…"
    return set_cell_size(text, max(0, width - 1)).rstrip() + mark if width > 0 else ""


def title_text(scene: Scene, width: int) -> Text:
    """Model, machines, and whether the picture follows the best plan."""
    state = scene.state
    nothing = scene.found is not None and not scene.searching and not scene.found.plans
    followed = "nothing fits: the nearest" if nothing else "best plan"
    right = followed if state.following else "your configuration"
    right += "  read only" if scene.readonly else ""
    gpus = scene.safe(state.gpus)
    room = max(8, width - cell_len(gpus) - cell_len(right) - 8)
    model = shortened(scene.safe(state.model), room, scene.ascii_only)
    text = Text(" " + model, style="bold")
    text.append("  on  ", style="dim")
    text.append(gpus, style=Style(bold=True, meta={"@click": "app.step_gpus(True)"}))
    pad = max(1, width - text.cell_len - cell_len(right) - 1)
    text.append(" " * pad)
    text.append(right, style="italic")
    return cut(text, width, scene.ascii_only)


def options_text(scene: Scene, width: int, column: bool) -> Text:
    """Every option with its key and its value: in a column, or flowing over the width."""
    pieces = [_gpu_piece(scene, column), _count_piece(scene, column)]
    pieces += [_piece(scene, name, column, width) for name in scene.state.menu.shown]
    if column:
        return Text("\n").join(cut(piece, width, scene.ascii_only) for piece in pieces)
    lines, line = [], Text()
    for piece in pieces:
        if line.cell_len and line.cell_len + 2 + piece.cell_len > width:
            lines.append(line)
            line = Text()
        if line.cell_len:
            line.append("  ")
        line.append_text(piece)
    return Text("\n").join([*lines, line])


def _piece(scene: Scene, name: str, column: bool, width: int) -> Text:
    choice, origin = scene.state.menu.choices[name], scene.origin(name)
    label = choice.label if column else choice.short or choice.label
    value = scene.safe(scene.value(name)) + _MARKS[origin]
    click = Style() if origin == "script" else Style(meta={"@click": f"app.step('{name}')"})
    text = Text(" " if column else "")
    text.append("=" if origin == "script" else choice.key, style="dim" if origin == "script" else KEY)
    text.append(f" {label:<16}" if column else f" {label} ", style=click + Style(dim=True))
    style = Style(bold=origin not in ("default", "script"))
    text.append(shortened(value, max(4, width - 20), scene.ascii_only) if column else value, style=click + style)
    return text


def _gpu_piece(scene: Scene, column: bool) -> Text:
    return _machine(scene, "g", "GPU", scene.state.gpus.rpartition("x")[2], "app.step_gpu_kind(True)", column)


def _count_piece(scene: Scene, column: bool) -> Text:
    count = scene.state.gpus.rpartition("x")[0] or "1"
    return _machine(scene, "n", "GPUs", count, "app.step_gpus(True)", column)


def _machine(scene: Scene, key: str, label: str, value: str, action: str, column: bool) -> Text:
    click = Style(meta={"@click": action})
    text = Text(" " if column else "")
    text.append(key, style=KEY)
    text.append(f" {label:<16}" if column else f" {label} ", style=click + Style(dim=True))
    text.append(scene.safe(value), style=click + Style(bold=True))
    return text


def verdict_text(scene: Scene, width: int) -> Text:
    """FITS, TIGHT or OOM; what is used; how fast it is expected to be."""
    candidate = scene.candidate
    if scene.problem:
        return _problem_text(scene, width)
    if candidate is None or candidate.memory is None:
        return _without_figures(scene, width)
    choice, memory = candidate.strategy, candidate.memory
    certain = scene.picture is not None and scene.picture.exact
    known = certain or candidate.verdict == "no"
    text = Text(" BEFORE " if scene.stale else " ", style="italic" if scene.stale else "")
    text.append(VERDICTS[candidate.verdict] if known else ".....", style=f"bold {VERDICT_COLOURS[candidate.verdict]}")
    text.append("  " + scene.safe(words.strategy_words(choice)), style="bold")
    text.append(f"  {scene.safe(words.shape_words(candidate)[0])}", style="dim")
    lines = [cut(text, width, scene.ascii_only)]
    least = f"at least {words.gib(memory.device_used_bytes)} GiB"
    if scene.picture is not None and scene.picture.states_only:
        least += " by model states alone"
    pieces = words.memory_words(memory) if certain else [least]
    lines.append(_joined(scene, pieces, width))
    if candidate.speed is not None:
        lines.append(_joined(scene, words.rate_words(candidate), width))
    lines += [_joined(scene, pieces, width) for pieces in _of_generation(scene, candidate)]
    if candidate.reason is not None:
        lines += _wrapped(scene, candidate.reason, width, BAD)
    found = scene.found
    if found is not None and not found.plans and found.nearest_change and not scene.searching:
        lines += _wrapped(scene, found.nearest_change, width, "bold")
        lines += _what_else(scene, found, width)
    return Text("\n").join(lines)


def _problem_text(scene: Scene, width: int) -> Text:
    """Why there is no picture, in full, and what can be done."""
    head = "NO PICTURE  "
    first, *rest = textwrap.wrap(head + scene.safe(scene.problem), max(20, width - 2)) or [head]
    lines = [Text.assemble((" " + head, f"bold {BAD}"), first[len(head) :])]
    lines += [Text(" " + line) for line in rest]
    lines.append(Text(" Backspace takes the last change back, e edits every option", style="dim"))
    return Text("\n").join(cut(line, width, scene.ascii_only) for line in lines)


def _of_generation(scene: Scene, candidate: Candidate) -> list[list[str]]:
    """Peaks by phase, what the weights and the cache take, how far it can be taken where that was found."""
    found = [plan for plan in (() if scene.found is None else scene.found.plans) if plan.inference is not None]
    same = next((plan for plan in found if same_choice(plan.strategy, candidate.strategy)), None)
    known = same if same is not None and not scene.searching else None
    if candidate.inference is not None and known is not None and known.inference is not None:
        limits = {name: getattr(known.inference, name) for name in ("max_context", "max_batch", "limits")}
        candidate = replace(candidate, inference=replace(candidate.inference, **limits))
    return words.extra_lines(candidate)


def _without_figures(scene: Scene, width: int) -> Text:
    if scene.found is not None and not scene.found.plans and not scene.searching:
        lines = [Text.assemble((" OOM   ", f"bold {BAD}"), ("no plan fits these machines", "bold"))]
        if scene.found.nearest_change:
            lines.append(Text(" " + scene.safe(scene.found.nearest_change)))
        lines += _what_else(scene, scene.found, width)
        return Text("\n").join(cut(line, width, scene.ascii_only) for line in lines)
    return Text(f" {scene.busy or 'starting'} ...", style="italic")


def _what_else(scene: Scene, found: PlanDocument, width: int) -> list[Text]:
    """Two more changes that would fit, each with its figures; the first is the nearest."""
    rows = words.alternative_rows(found)[1:_ELSE]
    return [line for change, figures in rows for line in _wrapped(scene, f"or {change} ({figures})", width, "dim")]


def _joined(scene: Scene, pieces: list[str], width: int) -> Text:
    dot = " - " if scene.ascii_only else " · "
    line = ""
    for piece in map(scene.safe, pieces):
        # Where there is no room for an interval, the figure itself still counts.
        for words_ in (piece, _ASIDE.sub("", piece)):
            longer = line + dot + words_ if line else words_
            if cell_len(longer) <= width - 2:
                break
        else:
            break
        line = longer
    return Text(" " + line)


def memory_text(scene: Scene, width: int, thick: bool, every: bool = True) -> Text:
    """A stacked bar for each class of ranks against the capacity, the ruler, and the categories by name.

    Without `every` only the worst rank's.
    """
    candidate, picture = scene.candidate, scene.picture
    if candidate is None or candidate.memory is None or picture is None:
        return Text("")
    memory = candidate.memory
    inner = max(10, width - 2)
    whole = stack(parts_of(memory), memory.capacity_bytes, memory.device_used_high_bytes, inner)
    lines = [_bar(scene, whole)]
    if thick and not scene.letters:
        lines.append(_bar(scene, whole, named=False))
    lines.append(_ruler(scene, whole, memory))
    for rank in picture.ranks[1:] if every else ():
        parts = [(key, key.replace("_", " "), size) for key, size in rank.at_peak if size]
        scale = max(memory.capacity_bytes, memory.device_used_high_bytes)
        other = replace(stack(parts, scale, 0, inner), capacity=whole.capacity)
        lines.append(_bar(scene, other))
        name = f" {rank.name} allocates {words.gib(rank.peak_allocated_bytes)} GiB"
        lines.append(cut(Text(name, style="dim"), width, scene.ascii_only))
    return Text("\n").join([*lines, *_legend(scene, whole, memory, inner)])


def _bar(scene: Scene, whole: Stack, named: bool = True) -> Text:
    text = Text(" ")
    for segment in whole.segments:
        if scene.letters:
            text.append(LETTERS.get(segment.key, "o") * segment.cells)
            continue
        label = f" {scene.safe(segment.label)} {words.gib(segment.bytes)}"
        filled = label if named and cell_len(label) < segment.cells else ""
        filled = filled.ljust(segment.cells)
        text.append(filled, style=f"{ink(segment.key)} on {COLOURS.get(segment.key, '#888888')}")
    used = sum(segment.cells for segment in whole.segments)
    maybe, free = ("+", ".") if scene.ascii_only else ("▒", "░")
    text.append(maybe * whole.maybe, style="dim")
    text.append(free * max(0, whole.capacity - used - whole.maybe), style="dim")
    return text


def _ruler(scene: Scene, whole: Stack, memory: MemoryFigures) -> Text:
    """Where the capacity lies under the bar, and what lies beyond it."""
    line, end = ("-", "|") if scene.ascii_only else ("─", "┤")
    beyond = whole.width - whole.capacity
    text = Text().append(" " + line * max(0, whole.capacity - 1) + end, style="dim")
    label = f"{words.gib(memory.capacity_bytes)} GiB"
    free = memory.headroom_bytes
    room = f" {words.gib(abs(free))} GiB {'free' if free >= 0 else 'too much'} of {label} "
    style = "bold" if free >= 0 else f"bold {BAD}"
    inside = len(room) + 4 < whole.capacity
    if inside:
        text = text[: whole.capacity - len(room) - 1] + Text(room, style=style) + text[whole.capacity - 1 :]
    elif len(room) < beyond:
        text.append(room, style=style)
        beyond -= len(room)
    text.append(("!" if scene.letters else "━") * beyond, style=f"bold {BAD}")
    return text


def _legend(scene: Scene, whole: Stack, memory: MemoryFigures, width: int) -> list[Text]:
    """Every category with its GiB, flowing."""
    lines, line = [], Text(" ")
    for segment in whole.segments:
        piece = Text()
        if scene.letters:
            piece.append(LETTERS.get(segment.key, "o"), style="bold")
        else:
            piece.append("#" if scene.ascii_only else "■", style=COLOURS.get(segment.key, "#888888"))
        piece.append(f" {scene.safe(segment.label)} {words.part_gib(segment.bytes, memory)}")
        if line.cell_len > 1 and line.cell_len + 2 + piece.cell_len > width:
            lines.append(line)
            line = Text(" ")
        if line.cell_len > 1:
            line.append("  ")
        line.append_text(piece)
    return [*lines, line]


def _wrapped(scene: Scene, text: str, width: int, style: str) -> list[Text]:
    """At most two lines."""
    lines = textwrap.wrap(scene.safe(text), max(10, width - 2))
    rest = lines[:1] + ([" ".join(lines[1:])] if len(lines) > 1 else [])
    return [cut(Text(" " + line, style=style), width, scene.ascii_only) for line in rest]


def cut(text: Text, width: int, ascii_only: bool) -> Text:
    """At most `width` columns, with an ellipsis where something is left out."""
    short = text.copy()
    if ascii_only and short.cell_len > width:
        short.truncate(width - 1, overflow="crop")
        short.append("~")
    short.truncate(width, overflow="ellipsis")
    return short
