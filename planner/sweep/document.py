"""What a sweep found, point by point: what `--sweep --json` prints and every report of it shows. Versioned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.notebook import shown
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.plan.document import SCHEMA_VERSION, Candidate, PlanDocument, check_version

PointVerdict = Literal["fits", "tight", "no", "refused"]
"""As a plan's, or `refused`: the values make no sense together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAxis:
    """One option that varied."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One combination of values."""

    values: tuple[str, ...]
    """In the order of the axes."""
    command: str
    """The command that plans this point alone."""
    verdict: PointVerdict
    model: str | None = None
    gpus: int | None = None
    """Devices of the whole cluster."""
    sequence: bool = True
    """Whether the model has a sequence, and so tokens."""
    plan: Candidate | None = None
    """The best plan, or where nothing fits the candidate that misses by least."""
    reason: str | None = None
    """Why nothing fits, or why the point was refused."""
    nearest_change: str | None = None
    num_plans: int = 0
    num_rejected: int = 0

    def __post_init__(self) -> None:
        if self.verdict in ("fits", "tight") and self.plan is None:
            raise ValueError(f"the point {', '.join(self.values)} fits without a plan")
        if self.verdict in ("no", "refused") and not self.reason:
            raise ValueError(f"the point {', '.join(self.values)} needs a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """All that one sweep found."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["sweep"] = "sweep"
    command: str
    created_with: Mapping[str, str]
    axes: tuple[SweepAxis, ...]
    points: tuple[SweepPoint, ...]
    """Every combination, the last axis varying fastest."""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expected = 1
        for axis in self.axes:
            expected *= len(axis.values)
        if expected != len(self.points):
            raise ValueError(f"the axes span {expected} points, {len(self.points)} are given")
        if any(len(point.values) != len(self.axes) for point in self.points):
            raise ValueError("a point has as many values as there are axes")

    def _repr_html_(self) -> str | None:
        return shown("sweep_fragment", self)

    @property
    def fits(self) -> bool:
        """Whether any point has a plan that fits."""
        return any(point.verdict == "fits" for point in self.points)

    def point(self, *values: str) -> SweepPoint:
        """The point of these values. KeyError where there is none."""
        for found in self.points:
            if found.values == values:
                return found
        raise KeyError(values)


def point_of(values: tuple[str, ...], command: str, document: PlanDocument) -> SweepPoint:
    """What a plan document says of a point."""
    best = document.best
    nearest = max(document.rejected, key=_headroom, default=None)
    plan = best or nearest
    gpus = document.cluster["gpus"]
    return SweepPoint(
        values=values,
        command=command,
        verdict="no" if best is None else best.verdict,
        model=document.model.id,
        gpus=gpus if isinstance(gpus, int) else None,
        sequence=document.model.has_sequence,
        plan=plan if plan is not None and plan.memory is not None else best,
        reason=None if best is not None else (nearest.reason if nearest is not None else None) or "nothing was found",
        nearest_change=document.nearest_change,
        num_plans=len(document.plans),
        num_rejected=len(document.rejected),
    )


def refused_point(values: tuple[str, ...], command: str, reason: str) -> SweepPoint:
    """A point whose values make no sense together."""
    return SweepPoint(values=values, command=command, verdict="refused", reason=reason)


def sweep_to_json(document: SweepDocument) -> str:
    """JSON, the same bytes for the same document, without a final newline."""
    return dump(document)


def sweep_from_json(text: str | bytes, where: str) -> SweepDocument:
    """The sweep in `text`. InputError in one line for anything that `sweep_to_json` could not write."""
    value = load_object(text, where)
    check_version(value, where)
    if value.get("document") != "sweep":
        raise InputError(f"{where} is not a sweep: `plan MODEL --gpus ... --sweep OPTION=A,B --json` prints one")
    return decode(SweepDocument, value, where)


def _headroom(candidate: Candidate) -> float:
    return candidate.memory.headroom_bytes if candidate.memory else float("-inf")
