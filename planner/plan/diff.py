"""What sets two plans apart: their inputs, their strategy, and every figure. Pure; knows no file and no format."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.document import SCHEMA_VERSION, Candidate, ModelFacts, PlanDocument
from gpu_plan.planner.plan.saved import SavedPlan

Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two plans."""

    name: str
    """The file it came from."""
    model: ModelFacts
    cluster: Mapping[str, object]
    workload: Mapping[str, object]
    versions: Mapping[str, str]
    candidate: Candidate | None
    """None in a document without any evaluated candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that is not the same; None where a side has no such value."""

    section: str
    """`model`, `cluster`, `workload`, `strategy`, `plan`, or `versions`."""
    key: str
    """Name in the plan document; dots lead into objects."""
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of both plans, changed or not; None where a side does not have it."""

    name: str
    """Name in the plan document; dots lead into objects."""
    before: Number | None
    after: Number | None
    change: Number | None = field(init=False)
    """`after - before`; None where one is missing."""

    def __post_init__(self) -> None:
        known = self.before is not None and self.after is not None
        object.__setattr__(self, "change", self.after - self.before if known else None)  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """Bytes at the peak of one kind of tensor; None where a side does not name it among its largest."""

    category: str
    module: str
    operator: str | None
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """Everything that sets `after` apart from `before`."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["plan-diff"] = "plan-diff"
    before: str
    after: str
    same: bool = field(init=False)
    """Whether nothing at all differs."""
    differences: tuple[Difference, ...]
    memory: tuple[Figure, ...]
    """Bytes, and a count of retries."""
    speed: tuple[Figure, ...]
    tensors: tuple[TensorChange, ...] | None
    """Those that differ, the largest change first; None unless both plans were made with --explain."""

    def __post_init__(self) -> None:
        figures = (*self.memory, *self.speed)
        same = not self.differences and not self.tensors and all(figure.before == figure.after for figure in figures)
        object.__setattr__(self, "same", same)


def side_of_saved(plan: SavedPlan, name: str) -> Side:
    """A plan that `--save` wrote."""
    return Side(
        name=name,
        model=plan.model,
        cluster=plan.cluster,
        workload=plan.workload,
        versions=plan.created_with,
        candidate=plan.plan,
    )


def side_of_document(document: PlanDocument, name: str, candidate: Candidate | None) -> Side:
    """One candidate of what `--json` printed."""
    return Side(
        name=name,
        model=document.model,
        cluster=document.cluster,
        workload=document.workload,
        versions=document.created_with,
        candidate=candidate,
    )


def compare(before: Side, after: Side) -> PlanDiff:
    """What sets `after` apart from `before`. Where a value came from (`workload.basis`) does not count."""
    first, second = _sections(before), _sections(after)
    return PlanDiff(
        before=before.name,
        after=after.name,
        differences=tuple(
            difference for section in first for difference in _differences(section, first[section], second[section])
        ),
        memory=_figures(*(_numbers(side.candidate and side.candidate.memory) for side in (before, after))),
        speed=_figures(*(_numbers(side.candidate and side.candidate.speed) for side in (before, after))),
        tensors=_tensors(before.candidate, after.candidate),
    )


def _sections(side: Side) -> dict[str, dict[str, object]]:
    candidate = side.candidate
    judged: dict[str, object] = {}
    if candidate is not None:
        memory = candidate.memory
        judged = {"verdict": candidate.verdict, "reason": candidate.reason}
        judged["phase_of_peak"] = None if memory is None else memory.phase_of_peak
    return {
        "model": dict(_flat(plain(side.model))),
        "cluster": dict(_flat(plain(side.cluster))),
        "workload": {key: value for key, value in _flat(plain(side.workload)) if not key.startswith("basis.")},
        "strategy": {} if candidate is None else dict(_flat(plain(candidate.strategy))),
        "plan": judged,
        "versions": dict(side.versions),
    }


def _flat(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def _differences(section: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[Difference]:
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            yield Difference(section=section, key=key, before=before.get(key), after=after.get(key))


def _numbers(figures: object) -> dict[str, Number]:
    """Every number of a section; empty where there is none."""
    if figures is None:
        return {}
    return {
        key: value
        for key, value in _flat(plain(figures))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _figures(before: Mapping[str, Number], after: Mapping[str, Number]) -> tuple[Figure, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(Figure(name=name, before=before.get(name), after=after.get(name)) for name in names)


def _tensors(before: Candidate | None, after: Candidate | None) -> tuple[TensorChange, ...] | None:
    if before is None or after is None or before.explain is None or after.explain is None:
        return None
    first, second = _by_origin(before), _by_origin(after)
    found = [
        TensorChange(category=key[0], module=key[1], operator=key[2], before=first.get(key), after=second.get(key))
        for key in dict.fromkeys((*first, *second))
        if first.get(key) != second.get(key)
    ]
    return tuple(sorted(found, key=lambda tensor: -abs((tensor.after or 0) - (tensor.before or 0))))


def _by_origin(candidate: Candidate) -> dict[tuple[str, str, str | None], int]:
    found: dict[tuple[str, str, str | None], int] = {}
    for line in candidate.explain or ():
        key = (line.category, line.module, line.operator)
        found[key] = found.get(key, 0) + line.bytes
    return found
