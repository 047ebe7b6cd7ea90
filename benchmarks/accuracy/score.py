"""Every row of a truth file: scored by its kind, or set aside with the reason."""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.accuracy.figures import FAULT, Aside, Line, Scored
from benchmarks.accuracy.inference.estimate import InferenceLines, inference_group
from benchmarks.accuracy.kept import Kept
from benchmarks.accuracy.kernels.estimate import KernelLines, kernel_group
from benchmarks.accuracy.memory.lines import MemoryLines, group_of
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.ran import ran_by
from benchmarks.accuracy.row import Row, SetAside, identity
from benchmarks.accuracy.speed.cases import group_of as speed_group
from benchmarks.accuracy.speed.estimate import SpeedLines
from benchmarks.accuracy.truth import Kind, Truth
from gpu_plan.planner.errors import PlanError

_GROUPS: Mapping[Kind, Callable[[Row], str]] = {
    Kind.MEMORY: group_of,
    Kind.INFERENCE: inference_group,
    Kind.SPEED: speed_group,
    Kind.KERNELS: kernel_group,
}


class Scorer:
    """Scores rows of every kind; what they share is traced once."""

    def __init__(self, models: Models, *, without: bool = False) -> None:
        """`without`: as `SpeedLines` has it."""
        self._lines: dict[Kind, Callable[[Row], Line]] = {
            Kind.MEMORY: MemoryLines(models).line,
            Kind.INFERENCE: InferenceLines(models).line,
            Kind.SPEED: SpeedLines(models, without=without).line,
            Kind.KERNELS: KernelLines().line,
        }

    def score(
        self, truths: Sequence[Truth], tell: Callable[[str], None] = lambda text: None, kept: Kept | None = None
    ) -> Scored:
        """`tell` is given one line for each row that was scored; rows that are `kept` are not judged again."""
        lines: list[Line] = []
        aside = [
            Aside(id=stray, group="without group", kind="memory", reason="no row: an object is needed")
            for truth in truths
            for stray in truth.strays
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for row, kind in (
                (row, kind) for truth in truths for row, kind in zip(truth.rows, truth.kinds, strict=True)
            ):
                found = self._once(row, kind, kept)
                if isinstance(found, Aside):
                    aside.append(found)
                else:
                    lines.append(found)
                    tell(_told(found))
        return Scored(lines=tuple(lines), aside=tuple(aside))

    def _once(self, row: Row, kind: Kind, kept: Kept | None) -> Line | Aside:
        if kept is None:
            return self.one(row, kind)
        found = kept.get(row, kind)
        if found is None:
            found = self.one(row, kind)
            kept.add(row, kind, found)
        return found

    def one(self, row: Row, kind: Kind) -> Line | Aside:
        """One row, whatever stands in it."""
        try:
            ran = ran_by(row)
            return self._lines[kind](row) | {"stack": ran.stack, "stack_told_by": ran.told_by}
        except SetAside as reason:
            told = str(reason)
        except PlanError as problem:
            told = f"the planner takes no such run: {_first_line(problem)}"
        except Exception as problem:
            # A row that was not foreseen is no reason to lose the others; the reason says that this one is a fault.
            told = f"{FAULT}: {type(problem).__name__}: {_first_line(problem)}"
        return Aside(id=identity(row), group=_GROUPS[kind](row), kind=str(kind), reason=told)


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or ["no more is known"])[0]


def _told(line: Mapping[str, Any]) -> str:
    errors = [
        f"{name.removesuffix('_error').replace('_', ' ')} {line[name]:+.3%}" for name in line if name.endswith("_error")
    ]
    if line["kind"] == "speed":
        errors = [f"step time {line['ratio'] - 1:+.1%}"]
    verdict = [f"died, called {line['verdict']}"] if line.get("died") else []
    shown = [text for text in [*errors, *verdict] if not text.startswith(("states", "above"))]
    return f"{line['id']} {line.get('model') or line.get('kernel')} ({line['stack']}): {', '.join(shown)}"


def to_stderr(text: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
