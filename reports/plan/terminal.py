"""The report that a person reads in a terminal and understands in ten seconds."""

import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import AtPeak, Candidate, MemoryFigures, PlanDocument
from gpu_plan.reports.clean import ascii_line, one_line
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.added.degree_words import degree_lines
from gpu_plan.reports.plan.added.left_out_words import left_out_lines
from gpu_plan.reports.plan.added.rank_words import RANK_HEADS, alike_words, place_words, rank_rows
from gpu_plan.reports.plan.bars import category_bars, runs_of, total_bar
from gpu_plan.reports.plan.command import before_launch, command_lines
from gpu_plan.reports.plan.explain import explain_rows, explained_share
from gpu_plan.reports.plan.groups import group_rejected
from gpu_plan.reports.plan.stages import STAGE_HEADS, schedule_words, stage_rows

MIN_WIDTH, MAX_WIDTH = 80, 200
_ASCII_GLYPHS = str.maketrans({"×": "x", "·": "-", "…": "~", "█": "#", "▒": "+", "░": ".", "▏": "|", "─": "-"})
_VERDICT_STYLES = {"fits": "bold green", "tight": "bold yellow", "no": "bold red"}
_BAR_STYLES = {
    "parameters": "blue",
    "gradients": "magenta",
    "optimizer_state": "cyan",
    "activations": "green",
    "temporary": "yellow",
    "communication": "red",
}
_LABEL = 8
_ASSUMPTIONS_SHOWN = 5
_PICTURES = 8
"""Ranks, or kinds of them, that are drawn."""


def render_terminal(
    document: PlanDocument,
    *,
    width: int | None = None,
    ascii_only: bool = False,
    color: bool | None = None,
    top: int = 5,
    explain: bool = False,
) -> str:
    """The report as text that ends with a newline.

    `width` is in columns, kept between 80 and 200; the terminal's own when None. `color` None asks NO_COLOR,
    FORCE_COLOR and the terminal. `top` plans are shown, and as many groups of those that do not fit.
    """
    columns = min(MAX_WIDTH, max(MIN_WIDTH, width or shutil.get_terminal_size().columns))
    use_color = wants_color(os.environ, sys.stdout.isatty()) if color is None else color
    page = _Page(width=columns, ascii_only=ascii_only)
    file = io.StringIO()
    console = Console(
        file=file,
        width=columns,
        force_terminal=use_color,
        color_system="standard" if use_color else None,
        no_color=not use_color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for part in _parts(document, page, top, explain):
        console.print(part, soft_wrap=isinstance(part, Text))
    text = "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    return text.translate(_ASCII_GLYPHS) if ascii_only else text


def wants_color(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """NO_COLOR forbids, FORCE_COLOR demands (`0` forbids), else a terminal that is not dumb."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return is_terminal and environ.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Size and character set."""

    width: int
    ascii_only: bool

    def safe(self, text: str) -> str:
        return ascii_line(text) if self.ascii_only else one_line(text)

    def joined(self, pieces: Iterable[str], indent: int) -> Text:
        """Pieces between dots, lines broken between pieces wherever that is possible."""
        lines = [""]
        for piece in map(self.safe, pieces):
            longer = f"{lines[-1]} · {piece}" if lines[-1] else piece
            if lines[-1] and cell_len(longer) > self.width - indent:
                lines.append(piece)
            else:
                lines[-1] = longer
        return Text("\n".join(lines))


def _parts(document: PlanDocument, page: _Page, top: int, explain: bool) -> Iterable[RenderableType]:
    if document.headline is not None:
        yield Padding(Text(page.safe(document.headline), style="bold yellow"), 0)
        yield Text("")
    yield _header(document, page)
    shown = words.focus(document)
    if shown is None:
        yield from _heading("OOM  no plan fits this cluster", "bold red")
    else:
        yield from _candidate(shown, document, page, explain)
    if document.nearest_change is not None:
        yield from _heading("Nearest change that would fit")
        yield Padding(Text(page.safe(document.nearest_change)), (0, 0, 0, 2))
    if document.best is None:
        yield from _what_else(document, page)
    if document.ranking is not None and document.ranking.why is not None:
        yield from _heading("Why")
        yield Padding(Text(page.safe(document.ranking.why)), (0, 0, 0, 2))
    if document.plans[1:top]:
        yield from _heading("Next best")
        yield _ranking(document.plans[1:top], page)
    if len(document.plans) > max(1, top):
        yield Text(f"  {len(document.plans) - max(1, top)} more with --top {len(document.plans)}", style="dim")
    if document.best is not None:
        yield from _what_else(document, page)
    yield from _losers(document, page, top)
    looked = words.search_words(document)
    if looked is not None:
        yield Text("")
        yield Padding(Text(page.safe(looked), style="dim"), (0, 0, 0, 2))
    if explain and document.search is not None and document.search.left_out:
        yield from _heading("Not traced")
        yield _bullets((page.safe(text), "") for text in left_out_lines(document.search.left_out))
    if explain and shown is not None:
        if shown.speed is not None and shown.speed.scaling is not None:
            yield from _heading("Scaling")
            yield Padding(Text(page.safe(shown.speed.scaling)), (0, 0, 0, 2))
        if said := degree_lines(shown):
            yield from _heading("What each degree costs")
            yield _bullets((page.safe(text), "") for text in said)
        yield from _explained(shown, page)
    if shown is not None and shown.command is not None and document.plans:
        yield from _heading("Run")
        for sentence in before_launch(document, shown):
            yield Padding(Text(page.safe(sentence)), (0, 0, 0, 2))
        for line in command_lines(page.safe(shown.command), page.width - 2):
            yield Text("  " + line)
    yield from _notes(document, page, explain)


def _what_else(document: PlanDocument, page: _Page) -> Iterable[RenderableType]:
    """Alternatives with their figures, and which were not evaluated."""
    untraced = words.untraced_words(document)
    if document.alternatives:
        yield from _heading("What else you could do")
        yield _bullets((page.safe(text), page.safe(aside)) for text, aside in words.alternative_rows(document))
    elif document.ranking is not None and document.plans and untraced is None:
        yield Text("  --alternatives evaluates what else you could do", style="dim")
    if untraced is not None:
        yield Padding(Text(page.safe(untraced), style="dim"), (0, 0, 0, 2))


def _heading(text: str, style: str = "bold") -> Iterable[Text]:
    yield Text("")
    yield Text(text, style=style)


def _header(document: PlanDocument, page: _Page) -> Table:
    grid = _grid(_LABEL)
    for label, pieces in (
        ("Model", words.model_words(document)),
        ("Cluster", words.cluster_words(document)),
        ("Job", words.workload_words(document)),
    ):
        grid.add_row(Text(label, style="dim"), page.joined(pieces, _LABEL + 1))
    return grid


def _grid(first: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=first, no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    return grid


def _bullets(rows: Iterable[tuple[str, str]]) -> Table:
    """Text and an aside in brackets, hanging from a dash."""
    grid = _grid(3)
    for text, aside in rows:
        line = Text(text)
        if aside:
            line.append(f" ({aside})", style="dim")
        grid.add_row("  -", line)
    return grid


def _candidate(candidate: Candidate, document: PlanDocument, page: _Page, explain: bool) -> Iterable[RenderableType]:
    choice, memory = candidate.strategy, candidate.memory
    title = page.safe(words.strategy_words(choice))
    verdict = words.VERDICTS[candidate.verdict]
    grid = _grid(_LABEL)
    headline = Text().append(title + words.place_words(document, choice), style="bold")
    if candidate.verdict == "tight":
        headline.append("  " + words.tight_words(candidate), style="yellow")
    if not document.plans:
        headline.append("  " + words.miss_words(document, candidate), style="red")
    grid.add_row(Text(verdict, style=_VERDICT_STYLES[candidate.verdict]), headline)
    grid.add_row("", page.joined(words.shape_words(candidate), _LABEL + 1))
    if memory is not None:
        grid.add_row("", page.joined(words.memory_words(memory), _LABEL + 1))
        if host := words.host_words(document, memory, explain=explain):
            grid.add_row("", page.joined(host, _LABEL + 1))
    if candidate.speed is not None and document.plans:
        grid.add_row("", page.joined(words.rate_words(candidate), _LABEL + 1))
    if schedule := schedule_words(candidate):
        grid.add_row("", page.joined(schedule, _LABEL + 1))
    if whole := words.job_figure_words(document):
        grid.add_row("", page.joined(whole, _LABEL + 1))
    for pieces in words.extra_lines(candidate):
        grid.add_row("", page.joined(pieces, _LABEL + 1))
    yield Text("")
    yield grid
    if memory is not None:
        yield Text("")
        yield _bars(memory, page)
    if candidate.stages:
        yield from _ranks(STAGE_HEADS, stage_rows(candidate), 2, page)
        yield from _pictures([(f"stage {one.rank}", one.at_peak) for one in candidate.stages], candidate, page)
    if rows := rank_rows(candidate):
        yield from _ranks(RANK_HEADS, rows, 1, page)
        yield from _pictures([(place_words(one), one.at_peak) for one in candidate.ranks], candidate, page)
    elif explain and (alike := alike_words(candidate)):
        yield from (Text(""), Text("  " + alike, style="dim"))


def _ranks(heads: Sequence[str], rows: Sequence[tuple[str, ...]], words: int, page: _Page) -> Iterable[RenderableType]:
    """What each rank of a pipeline takes, or each kind of rank; columns after the first few `words` are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, head in enumerate(heads):
        table.add_column(
            f"  {head}" if number == 0 else head, justify="right" if number >= words else "left", no_wrap=True
        )
    for row in rows:
        first, *others = (page.safe(cell) for cell in row)
        table.add_row("  " + first, *others)
    yield Text("")
    yield table


def _pictures(rows: Sequence[tuple[str, AtPeak]], candidate: Candidate, page: _Page) -> Iterable[RenderableType]:
    """What each rank, or kind of rank, has allocated at its own peak, a bar each as the device's own are drawn; nothing
    where no difference is as wide as a cell."""
    memory = candidate.memory
    drawn = [] if memory is None else [(name, at, *runs_of(at, memory, page.width - 31)) for name, at in rows]
    if len({free for *_, free in drawn}) < 2:
        return
    text = Text()
    for name, at_peak, runs, free in drawn[:_PICTURES]:
        text.append(f"  {page.safe(name)[:16]:<16}{words.gib(at_peak.total):>7}   ")
        for key, cells in runs:
            text.append("█" * cells, style=_BAR_STYLES.get(key, "white"))
        text.append("░" * free + "\n", style="dim")
    if len(drawn) > _PICTURES:
        text.append(f"  {len(drawn) - _PICTURES} more in --plot\n", style="dim")
    text.right_crop(1)
    yield from (Text(""), text)


def _bars(memory: MemoryFigures, page: _Page) -> Text:
    cells = page.width - 31
    text = Text()
    for bar in category_bars(memory, cells):
        size = words.part_gib(bar.bytes, memory)
        text.append(f"  {bar.label:<16}{size:>7}   {' ' * bar.before}")
        text.append("█" * bar.cells if bar.cells else "▏", style=_BAR_STYLES.get(bar.key, "white"))
        text.append("\n")
    total = total_bar(memory, cells)
    text.append(f"  {'used, GiB':<16}{words.gib(memory.device_used_bytes):>7}   ", style="bold")
    glyphs = "█" * total.certain + "▒" * total.possible
    text.append(glyphs[: total.capacity_cells], style="bold")
    text.append(glyphs[total.capacity_cells :], style="bold red")
    text.append("░" * total.free, style="dim")
    text.append(f"\n  {'capacity, GiB':<16}{words.gib(memory.capacity_bytes):>7}   ")
    text.append("─" * total.capacity_cells + "▏", style="dim")
    return text


def _ranking(plans: Sequence[Candidate], page: _Page) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    wide = page.width >= 100
    table.add_column("  plan", no_wrap=True, overflow="ellipsis")
    table.add_column("batch", no_wrap=True)
    table.add_column(words.second_column(plans, "checkpointing" if wide else "ckpt"), no_wrap=True)
    tokens = any(plan.speed is not None and plan.speed.tokens_per_second_per_gpu is not None for plan in plans)
    rate = ("tokens/s/GPU" if wide else "tok/s") if tokens else "samples/s"
    for name in ("GiB", "free", "step", rate):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for plan in plans:
        table.add_row(*_ranking_row(plan, page), Text(words.VERDICTS[plan.verdict], _VERDICT_STYLES[plan.verdict]))
    return table


def _ranking_row(plan: Candidate, page: _Page) -> list[Text]:
    choice, memory, speed = plan.strategy, plan.memory, plan.speed
    used = free = step = rate = ""
    if memory is not None:
        used, free = words.gib(memory.device_used_bytes), words.free_gib(memory)
    if speed is not None:
        tokens = speed.tokens_per_second_per_gpu
        step, rate = seconds(speed.step_seconds), words.rate(speed.samples_per_second if tokens is None else tokens)
    title = page.safe(words.strategy_words(choice))
    first, second = (page.safe(cell) for cell in words.ranking_words(plan))
    return [Text(cell) for cell in ("  " + title, first, second, used, free, step, rate)]


def _losers(document: PlanDocument, page: _Page, top: int) -> Iterable[RenderableType]:
    groups = group_rejected(document.rejected, document.plans)
    if not groups:
        return
    yield from _heading("Does not fit")
    limit = max(1, top)
    yield _bullets((page.safe(group.reason), page.safe(group.aside)) for group in groups[:limit])
    if len(groups) > limit:
        yield Text(f"  {len(groups) - limit} more kinds with --top {len(groups)}", style="dim")


def _explained(candidate: Candidate, page: _Page) -> Iterable[RenderableType]:
    rows = [tuple(page.safe(cell) for cell in row) for row in explain_rows(candidate)]
    share = explained_share(candidate)
    if not rows or share is None:
        return
    shown, peak = words.gib(share[0]), words.gib(share[1])
    yield from _heading(f"Largest tensors at the peak ({shown} of {peak} GiB)")
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for size, category, module, operator, tensors, basis in rows:
        origin = " · ".join(filter(None, (module, operator, tensors)))
        table.add_row(Text("  " + size), Text(category), Text(origin).append(f" ({basis})", style="dim"))
    yield table


def _notes(document: PlanDocument, page: _Page, everything: bool) -> Iterable[RenderableType]:
    if document.warnings:
        yield from _heading("Warnings", "bold yellow")
        yield _bullets((page.safe(warning), "") for warning in document.warnings)
    assumptions = words.ordered_assumptions(document, explain=everything)
    if assumptions:
        shown = assumptions if everything else assumptions[:_ASSUMPTIONS_SHOWN]
        yield from _heading("Assumes")
        yield _bullets((page.safe(text), basis) for text, basis in shown)
        if len(document.assumptions) > len(shown):
            yield Text(f"  {len(document.assumptions) - len(shown)} more with --explain", style="dim")
