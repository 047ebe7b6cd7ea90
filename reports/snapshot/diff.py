"""A predicted and a recorded memory history side by side, as plain text or as one JSON document."""

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.snapshot.diff import Gap, Request, Side, SnapshotDiff
from gpu_plan.planner.units import format_bytes
from gpu_plan.reports.clean import ascii_line, keep_columns, one_line

_ROWS = 6


def render_json(diff: SnapshotDiff) -> str:
    """ASCII only, without a final newline."""
    return dump(diff)


def render_text(diff: SnapshotDiff, *, ascii_only: bool = False) -> str:
    """Lines that end with a newline."""
    clean = ascii_line if ascii_only else one_line
    lines = [*_sides(diff), "", *_parting(diff), "", *_gaps(diff), *_sums(diff)]
    return "\n".join(keep_columns(line, clean) for line in lines).rstrip() + "\n"


def _sides(diff: SnapshotDiff) -> list[str]:
    ours, theirs = diff.predicted, diff.recorded
    lines = [f"predicted  {ours.name}", f"recorded   {theirs.name}", ""]
    lines.append(f"{'':24}{'predicted':>14}{'recorded':>14}{'difference':>14}")
    for label, left, right in (
        ("peak requested", ours.peak_requested_bytes, theirs.peak_requested_bytes),
        ("peak reserved", ours.peak_reserved_bytes, theirs.peak_reserved_bytes),
    ):
        lines.append(f"{label:24}{format_bytes(left):>14}{format_bytes(right):>14}{_change(left, right):>14}")
    lines.append(f"{'allocations':24}{ours.allocations:>14,}{theirs.allocations:>14,}")
    lines += [f"{name} reaches its peak with {_request(side.peak)}" for name, side in _named(diff) if side.peak]
    lines += [f"{name}: memory ran out" for name, side in _named(diff) if side.ran_out]
    return lines


def _named(diff: SnapshotDiff) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("predicted", diff.predicted), ("recorded", diff.recorded)


def _change(left: int, right: int) -> str:
    return f"{(left - right) / right:+.2%}" if right else "-"


def _parting(diff: SnapshotDiff) -> list[str]:
    lines = [f"{diff.agreeing:,} allocations agree in size and order."]
    if diff.before_record:
        lines.append(f"The record begins after {diff.before_record:,} predicted allocations.")
    if diff.after_record:
        lines.append(f"The record ends {diff.after_record:,} predicted allocations early.")
    if diff.first is None:
        return [*lines, "As far as both go, no allocation differs."]
    return [*lines, "They part first here:", *_gap(diff.first)]


def _gap(gap: Gap) -> list[str]:
    return [
        *_stretch("only predicted", gap.predicted, gap.predicted_count, gap.predicted_bytes),
        *_stretch("only recorded", gap.recorded, gap.recorded_count, gap.recorded_bytes),
    ]


def _stretch(label: str, requests: tuple[Request, ...], count: int, nbytes: int) -> list[str]:
    if not count:
        return []
    rows = [f"    {_request(request)}" for request in requests[:_ROWS]]
    more = [f"    and {count - len(rows):,} more"] if count > len(rows) else []
    return [f"  {label}: {count:,}, {format_bytes(nbytes)}", *rows, *more]


def _request(request: Request | None) -> str:
    if request is None:
        return "nothing"
    phase = f" ({request.phase})" if request.phase else ""
    return f"number {request.number:,}, {format_bytes(request.nbytes)}, {request.what}{phase}"


def _gaps(diff: SnapshotDiff) -> list[str]:
    if not diff.gaps:
        return []
    lines = ["Where they differ most:"]
    for gap in diff.gaps[:_ROWS]:
        lines += [f"  {gap.times:,} times" if gap.times > 1 else "  once", *_gap(gap), ""]
    return lines


def _sums(diff: SnapshotDiff) -> list[str]:
    changed = [row for row in diff.sums if row.predicted != row.recorded]
    if not changed:
        return []
    lines = [f"{'Requested in all, where it differs':44}{'predicted':>14}{'recorded':>14}"]
    for row in changed:
        label = f"{row.phase}: {row.category.replace('_', ' ')}" if row.phase else row.category
        lines.append(f"  {label:42}{format_bytes(row.predicted):>14}{format_bytes(row.recorded):>14}")
    return lines
