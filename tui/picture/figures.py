"""What the explorer shows of plans, as values: bars, rows, trees and differences. Pure; knows no screen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.plan.diff import compare, side_of_document
from gpu_plan.planner.plan.document import Candidate, MemoryFigures, PlanDocument, StrategyChoice, TensorLine
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.pareto import pareto_front

VERDICTS = {"fits": "FITS", "tight": "TIGHT", "no": "OOM"}
SORTS: tuple[str, ...] = ("speed", "memory", "free", "step", "strategy", "batch")
"""Orders of the table of plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a stacked bar."""

    key: str
    label: str
    bytes: int
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A device's memory as one bar of `width` cells; `capacity` cells are the device."""

    segments: tuple[Segment, ...]
    capacity: int
    width: int
    maybe: int
    """Cells beyond the expected use that the interval's high end may take."""


def stack(parts: Sequence[tuple[str, str, int]], capacity: int, high: int, width: int) -> Stack:
    """`parts` (key, label, bytes) one after the other, in scale with the capacity in bytes; widths sum exactly."""
    total = sum(size for _, _, size in parts)
    scale = max(capacity, high, total, 1)
    segments, start = [], 0
    for key, label, size in parts:
        first, last = round(start * width / scale), round((start + size) * width / scale)
        segments.append(Segment(key=key, label=label, bytes=size, cells=last - first))
        start += size
    end = round(total * width / scale)
    return Stack(
        segments=tuple(segments),
        capacity=round(capacity * width / scale),
        width=width,
        maybe=max(0, round(max(high, total) * width / scale) - end),
    )


def parts_of(memory: MemoryFigures) -> list[tuple[str, str, int]]:
    """Key, label and bytes of everything on the device, in the order of every report."""
    return [row for row in words.memory_rows(memory) if row[2] > 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table of plans."""

    candidate: Candidate
    title: str
    batch: str
    checkpointing: str
    """Of a generation the time of its prefill."""
    used: str
    free: str
    step: str
    rate: str
    verdict: str
    front: bool
    """Whether no other plan takes as little memory and is as fast."""
    reason: str
    focused: bool


def rows(
    document: PlanDocument,
    *,
    focused: StrategyChoice | None,
    sort: str = "speed",
    backwards: bool = False,
    text: str = "",
    rejected_too: bool = True,
    own: Candidate | None = None,
) -> list[Row]:
    """The table: plans, then those that lost; `text` must stand in a row's words for the row to stay.

    `own`: a configuration that the search has not, which is a row among the others (`missing`).
    """
    front = {id(candidate) for candidate in pareto_front(document.plans)}
    plans, rejected = list(document.plans), list(document.rejected)
    if own is not None:
        _place(own, rejected if own.verdict == "no" else plans)
    groups = [_sorted(group, sort) for group in (plans, rejected if rejected_too or own in rejected else ())]
    found = [
        _row(candidate, id(candidate) in front, focused)
        for group in groups
        for candidate in (reversed(group) if backwards else group)
    ]
    wanted = text.lower().split()
    return [row for row in found if all(word in _words_of(row) for word in wanted)]


def missing(document: PlanDocument | None, candidate: Candidate | None) -> Candidate | None:
    """The candidate, where a search has found none that is the same."""
    if document is None or candidate is None:
        return None
    known = (*document.plans, *document.rejected)
    return None if any(same_choice(one.strategy, candidate.strategy) for one in known) else candidate


def _place(own: Candidate, among: list[Candidate]) -> None:
    """Before the first that is slower: the order that the search gives its own is not by time alone."""
    speed = 0.0 if own.speed is None else own.speed.samples_per_second
    slower = (at for at, one in enumerate(among) if one.speed is None or one.speed.samples_per_second < speed)
    among.insert(next(slower, len(among)), own)


def _words_of(row: Row) -> str:
    return f"{row.title} {row.checkpointing} {row.verdict} {row.reason} {row.candidate.strategy.name}".lower()


def _sorted(candidates: Iterable[Candidate], sort: str) -> list[Candidate]:
    """In the document's order for `speed`: best first, and the nearest rejected first."""
    listed = list(candidates)
    if sort == "memory":
        return sorted(listed, key=lambda c: c.memory.device_used_bytes if c.memory else 2**62)
    if sort == "free":
        return sorted(listed, key=lambda c: -(c.memory.headroom_bytes if c.memory else -(2**62)))
    if sort == "step":
        return sorted(listed, key=lambda c: c.speed.step_seconds if c.speed else float("inf"))
    if sort == "batch":
        return sorted(listed, key=lambda c: (c.strategy.micro_batch_size, c.strategy.gradient_accumulation_steps))
    if sort == "strategy":
        return sorted(listed, key=lambda c: (words.strategy_words(c.strategy), c.strategy.micro_batch_size))
    return listed


def _row(candidate: Candidate, front: bool, focused: StrategyChoice | None) -> Row:
    choice, memory, speed = candidate.strategy, candidate.memory, candidate.speed
    batch, checkpointing = words.ranking_words(candidate)
    tokens = None if speed is None else speed.tokens_per_second_per_gpu
    return Row(
        candidate=candidate,
        title=words.strategy_words(choice),
        batch=batch,
        checkpointing=checkpointing,
        used="" if memory is None else words.gib(memory.device_used_bytes),
        free="" if memory is None else words.free_gib(memory),
        step="" if speed is None else seconds(speed.step_seconds),
        rate="" if tokens is None else f"{tokens:,.0f}",
        verdict=VERDICTS[candidate.verdict],
        front=front,
        reason=candidate.reason or "",
        focused=focused is not None and same_choice(choice, focused),
    )


def same_choice(one: StrategyChoice, other: StrategyChoice) -> bool:
    """Whether both are the same configuration."""
    names = (
        "name", "offload", "checkpointing", "micro_batch_size", "gradient_accumulation_steps", "tensor_parallel",
        "pipeline_parallel", "context_parallel", "expert_parallel", "dp_replicate", "checkpoint_every", "reshards",
        "expandable_segments",
    )  # fmt: skip
    return all(getattr(one, name) == getattr(other, name) for name in names)


Level = Literal["category", "module", "tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What stands at the peak under one name."""

    name: str
    bytes: int
    share: float
    """Of the level above."""
    count: int
    """Tensors."""
    basis: str
    detail: str = ""


def drill(lines: Sequence[TensorLine], category: str | None = None, module: str | None = None) -> list[Branch]:
    """Categories; of a category its modules; of a module its tensors. Largest first; a level sums to the one above."""
    chosen = [line for line in lines if category in (None, line.category)]
    if module is not None:
        chosen = [line for line in chosen if line.module == module]
        return _tensors(chosen)
    groups: dict[str, list[TensorLine]] = {}
    for line in chosen:
        groups.setdefault(line.category if category is None else line.module, []).append(line)
    whole = sum(line.bytes for line in chosen) or 1
    found = [
        Branch(
            name=name,
            bytes=sum(line.bytes for line in group),
            share=sum(line.bytes for line in group) / whole,
            count=sum(line.count for line in group),
            basis=", ".join(dict.fromkeys(line.basis for line in group)),
        )
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda branch: -branch.bytes)


def _tensors(lines: Sequence[TensorLine]) -> list[Branch]:
    whole = sum(line.bytes for line in lines) or 1
    found = []
    for line in sorted(lines, key=lambda line: -line.bytes):
        shape = f"[{', '.join(map(str, line.shape))}] {line.dtype}" if line.shape else line.dtype
        found.append(
            Branch(
                name=line.operator or "-",
                bytes=line.bytes,
                share=line.bytes / whole,
                count=line.count,
                basis=line.basis,
                detail=" · ".join(filter(None, (shape, line.origin))),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One line of a comparison."""

    section: str
    name: str
    before: str
    after: str
    change: str
    worse: bool | None = None
    """Whether the change is for the worse; None where that is no question."""


def differences(before: PlanDocument, after: PlanDocument) -> list[Changed]:
    """Everything that sets two configurations apart: inputs first, then every figure that changed."""
    sides = (
        side_of_document(before, "pinned", words.focus(before)),
        side_of_document(after, "now", words.focus(after)),
    )
    diff = compare(*sides)
    found = [
        Changed(section=d.section, name=d.key, before=_text(d.before), after=_text(d.after), change="")
        for d in diff.differences
    ]
    for section, figures in (("memory", diff.memory), ("speed", diff.speed)):
        for figure in figures:
            if figure.before != figure.after:
                found.append(_figure(section, figure.name, figure.before, figure.after))
    return found


def _figure(section: str, name: str, before: float | None, after: float | None) -> Changed:
    def shown(value: float | None, sign: bool = False) -> str:
        if value is None:
            return "-"
        if name.endswith("bytes") or name.startswith(("at_peak", "phase_peaks", "outside_allocator")):
            text = words.gib(int(value)) + " GiB"
        elif name.startswith(("step_seconds", "parts.")):
            text = ("-" if value < 0 else "") + seconds(abs(value))
        else:
            text = f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        return ("+" if sign and value > 0 else "") + text

    change = None if before is None or after is None else after - before
    better_up = name.startswith(("headroom", "tokens", "samples", "mfu"))
    worse = None if not change else (change < 0) == better_up
    return Changed(
        section=section, name=name, before=shown(before), after=shown(after),
        change="" if change is None else shown(change, sign=True), worse=worse,
    )  # fmt: skip


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 34 else text[:31] + "..."
