"""Two plans side by side, as plain text or as one JSON document."""

from collections.abc import Callable, Iterable, Sequence

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.diff import Difference, Figure, PlanDiff, Side, TensorChange
from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.units import format_bytes
from gpu_plan.reports.clean import ascii_line, keep_columns, one_line
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words

_TENSORS_SHOWN = 12
_LONGEST = 60
_MEMORY = {
    "at_peak.kv_cache": "KV cache",
    "peak_allocated_bytes": "peak allocated",
    "peak_reserved_bytes": "peak reserved",
    "outside_allocator.cuda_context": "CUDA context",
    "outside_allocator.nccl": "NCCL",
    "device_used_bytes": "device used",
    "device_used_low_bytes": "  at least",
    "device_used_high_bytes": "  at most",
    "capacity_bytes": "capacity",
    "headroom_bytes": "free",
    "at_rest_bytes": "between steps",
    "phase_peaks.load": "peak in load",
    "phase_peaks.forward": "peak in forward",
    "phase_peaks.backward": "peak in backward",
    "phase_peaks.optimizer step": "peak in optimizer step",
    "host_bytes": "host RAM per rank",
    "nvme_bytes": "NVMe per rank",
    "host.load_bytes": "RAM of a node to load",
    "host.step_bytes": "RAM of a node in steps",
    "host.save_bytes": "RAM of a node to save",
}
"""Words for figures, in the order in which they are shown; categories at the peak come first."""
_SPEED: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_seconds": ("step", seconds),
    "step_seconds_low": ("  at least", seconds),
    "step_seconds_high": ("  at most", seconds),
    "tokens_per_second_per_gpu": ("tokens/s per GPU", lambda rate: f"{rate:,.0f}"),
    "samples_per_second": ("samples/s", lambda rate: f"{rate:,.1f}"),
    "mfu": ("MFU", lambda share: f"{share:.1%}"),
}


def render_json(diff: PlanDiff) -> str:
    """The same bytes for the same difference, ASCII only, without a final newline."""
    return dump(diff)


def render_text(diff: PlanDiff, before: Side, after: Side, *, ascii_only: bool = False) -> str:
    """Lines that end with a newline. `before` and `after` are the plans that were compared."""
    blocks = [_heading(before, after), *_body(diff)]
    clean = ascii_line if ascii_only else one_line
    lines = [line for block in blocks for line in (*block, "")]
    return "\n".join(keep_columns(line, clean) for line in lines[:-1]) + "\n"


def _heading(before: Side, after: Side) -> list[str]:
    rows = [("before", one_line(before.name), _title(before)), ("after", one_line(after.name), _title(after))]
    return _columns(rows)


def _title(side: Side) -> str:
    if side.candidate is None:
        return f"{side.model.id}: no plan was evaluated"
    verdict = words.VERDICTS[side.candidate.verdict]
    return f"{verdict}  {side.model.id}: {_plan_words(side.candidate)}"


def _plan_words(candidate: Candidate) -> str:
    choice = candidate.strategy
    pieces = (words.strategy_words(choice), words.batch_words(choice), words.checkpointing_words(choice))
    return " · ".join(pieces)


def _body(diff: PlanDiff) -> Iterable[list[str]]:
    if diff.same:
        yield ["No difference."]
        return
    if diff.differences:
        yield ["Differences", *_columns([_difference_row(difference) for difference in diff.differences], "  ")]
    memory = [row for figure in _ordered_memory(diff.memory) if (row := _memory_row(figure))]
    if memory:
        yield ["Memory of the worst rank", *_columns([("", "before", "after", "change"), *memory], "  ", right=True)]
    speed = [row for name in _SPEED for figure in diff.speed if figure.name == name and (row := _speed_row(figure))]
    if speed:
        yield ["Expected speed", *_columns([("", "before", "after", "change"), *speed], "  ", right=True)]
    if diff.tensors:
        rows = [_tensor_row(tensor) for tensor in diff.tensors[:_TENSORS_SHOWN]]
        yield ["Largest tensors that differ", *_columns(rows, "  ")]


def _difference_row(difference: Difference) -> tuple[str, ...]:
    return difference.section, difference.key, f"{_value(difference.before)} -> {_value(difference.after)}"


def _value(value: object) -> str:
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else one_line(str(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _ordered_memory(figures: Sequence[Figure]) -> list[Figure]:
    at_peak = [figure for figure in figures if figure.name.startswith("at_peak.")]
    named = {figure.name: figure for figure in figures if not figure.name.startswith("at_peak.")}
    return at_peak + [named[name] for name in _MEMORY if name in named]


def _memory_row(figure: Figure) -> tuple[str, ...] | None:
    if not figure.before and not figure.after:
        return None
    label = _MEMORY.get(figure.name) or figure.name.rpartition(".")[2].replace("_", " ")
    return label, _size(figure.before), _size(figure.after), _change(figure, lambda size: format_bytes(int(size)))


def _size(num_bytes: float | None) -> str:
    return "-" if num_bytes is None else format_bytes(int(num_bytes))


def _speed_row(figure: Figure) -> tuple[str, ...] | None:
    if figure.before is None and figure.after is None:
        return None
    label, form = _SPEED[figure.name]
    shown = ["-" if value is None else form(value) for value in (figure.before, figure.after)]
    return label, *shown, _change(figure, None)


def _change(figure: Figure, form: Callable[[float], str] | None) -> str:
    """`+1.2 GiB (+8%)`; without a form only the share."""
    if not figure.change:
        return ""
    share = f"{figure.change / figure.before:+.1%}" if figure.before else ""
    if form is None:
        return share
    sign = "+" if figure.change > 0 else ""
    return f"{sign}{form(figure.change)}" + (f" ({share})" if share else "")


def _tensor_row(tensor: TensorChange) -> tuple[str, ...]:
    origin = " ".join(filter(None, (one_line(tensor.module), one_line(tensor.operator or ""))))
    sizes = [None if size is None else format_bytes(size) for size in (tensor.before, tensor.after)]
    before, after = (size or "not named" for size in sizes)
    return tensor.category.replace("_", " "), f"{before} -> {after}", origin or "-"


def _columns(rows: Sequence[tuple[str, ...]], indent: str = "", *, right: bool = False) -> list[str]:
    """Padded columns; with `right`, all but the first are set flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if right and column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
