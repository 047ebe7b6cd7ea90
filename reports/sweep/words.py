"""A sweep's points in words and rows, the same in every report. Nothing here knows a format."""

from gpu_plan.planner.sweep.document import SweepDocument, SweepPoint
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words
from gpu_plan.reports.tables.frames import Row, candidate_row

VERDICTS = {**words.VERDICTS, "refused": "refused"}
WIDTH = 7
"""Figures of a point."""


def header(document: SweepDocument) -> tuple[str, ...]:
    """Names of the figures that `point_cells` gives."""
    second = words.second_column([point.plan for point in document.points if point.plan is not None], "ckpt")
    return ("plan", "batch", second, "GiB", "free", "step", "rate")


def point_cells(point: SweepPoint) -> tuple[str, ...]:
    """A point's figures under `header`; of what does not fit, of the candidate that misses by least."""
    plan = point.plan
    if plan is None:
        return ("",) * WIDTH
    choice, memory, speed = plan.strategy, plan.memory, plan.speed
    return (
        words.strategy_words(choice),
        *words.ranking_words(plan),
        "" if memory is None else words.gib(memory.device_used_bytes),
        "" if memory is None else words.free_gib(memory),
        "" if speed is None or not fits(point) else seconds(speed.step_seconds),
        "" if speed is None or not fits(point) else words.throughput(speed).replace(" per GPU", "/GPU"),
    )


def fits(point: SweepPoint) -> bool:
    """Whether the point has a plan at all."""
    return point.verdict in ("fits", "tight")


def share_used(point: SweepPoint) -> float | None:
    """Of the device's capacity; above 1 where it does not fit, None where nothing was evaluated."""
    memory = None if point.plan is None else point.plan.memory
    return None if memory is None else memory.device_used_bytes / memory.capacity_bytes


def grids(document: SweepDocument) -> list[tuple[str, list[list[SweepPoint]]]]:
    """Rows of points for a heat map: the first axis down, the second across; a caption for each further value."""
    axes = document.axes
    across = len(axes[1].values) if len(axes) > 1 else 1
    found: list[tuple[str, list[list[SweepPoint]]]] = []
    for at, value in enumerate(axes[2].values if len(axes) > 2 else ("",)):
        stride = len(axes[2].values) if len(axes) > 2 else 1
        mine = list(document.points[at::stride])
        rows = [mine[start : start + across] for start in range(0, len(mine), across)]
        found.append((f"{axes[2].name} {value}" if len(axes) > 2 else "", rows))
    return found


def labels(document: SweepDocument) -> tuple[list[str], list[str]]:
    """Names of a grid's rows and columns."""
    axes = document.axes
    down = [f"{axes[0].name} {value}" if at == 0 else value for at, value in enumerate(axes[0].values)]
    across = [f"{axes[1].name} {value}" for value in axes[1].values] if len(axes) > 1 else [""]
    return down, across


def sweep_rows(document: SweepDocument) -> list[Row]:
    """One flat row for each point: its values by the axes' names, then the figures of its plan."""
    rows: list[Row] = []
    for point in document.points:
        values: Row = {
            axis.name: number_of(axis.name, value) for axis, value in zip(document.axes, point.values, strict=True)
        }
        figures = candidate_row(point.plan)
        figures.pop("verdict", None)
        told: Row = {"verdict": point.verdict, "model": point.model, "num_gpus": point.gpus}
        told["reason"] = point.reason
        told["nearest_change"] = point.nearest_change
        told["command"] = point.command
        rows.append({**values, **{k: v for k, v in figures.items() if k not in told and k not in values}, **told})
    return rows


def number_of(name: str, value: str) -> object:
    """`4096` for `4k`; what is no whole number, or names a model or a cluster, as it was written."""
    digits = value.lower().removesuffix("k")
    if name in ("model", "gpus") or not (digits.isascii() and digits.isdigit() and len(digits) < 12):
        return value
    return int(digits) * (1 if digits == value else 1024)


def reasons(document: SweepDocument) -> list[tuple[str, str]]:
    """Values and reason of every point without a plan; equal reasons once."""
    found: dict[str, list[str]] = {}
    for point in document.points:
        if point.reason and not fits(point):
            found.setdefault(point.reason, []).append(" ".join(point.values))
    return [(", ".join(values), reason) for reason, values in found.items()]
