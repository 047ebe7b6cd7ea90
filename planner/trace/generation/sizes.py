"""Generations of sizes between recorded ones: of equal structure, every size is a polynomial that these determine.

Bytes and work are at most quadratic in the prompt's length and linear in the batch. Three recordings determine the one,
two the other; one more must lie on it, and only sizes between the outermost are told. Anything else is recorded.
Arrays alone: nothing here imports torch.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.variant import GenerationVariant

_COLUMNS = ("bytes_fixed", "op_flops_fixed", "op_bytes_fixed")
"""What changes with size; a generation's recording holds its own batch, so that nothing is per sample."""
_SAME = (
    "kind", "subject", "category", "tensor_module", "tensor_operator", "tensor_parameter", "op_name", "op_module",
    "op_phase", "op_reads_at", "op_reads", "op_writes_at", "op_writes", "bytes_per_sample",
)  # fmt: skip
_ALIKE = ("modules", "operator_names", "parameters", "buffer_bytes")
_TILE = 64
"""Kernels count rows in whole tiles: lengths are compared with those of the same remainder alone."""
T = TypeVar("T")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    variant: GenerationVariant
    trace: StepTrace


@dataclass(slots=True)
class Sizes:
    """Recorded generations of one model, and those that follow from them."""

    _points: list[_Point] = field(default_factory=list)

    def add(self, variant: GenerationVariant, trace: StepTrace) -> None:
        """A recording."""
        self._points.append(_Point(variant=variant, trace=trace))

    def between(self, variant: GenerationVariant) -> StepTrace | None:
        """The generation that `variant` describes, where recordings tell it; None where it must be recorded."""
        lengths = [p for p in self._points if _but_length(p.variant) == _but_length(variant)]
        found = _told(lengths, variant.prompt, [p.variant.prompt for p in lengths], degree=2)
        if found is None:
            batches = [p for p in self._points if replace(p.variant, batch=variant.batch) == variant]
            found = _told(batches, variant.batch, [p.variant.batch for p in batches], degree=1)
        return found


def _but_length(variant: GenerationVariant) -> tuple[Any, ...]:
    """Everything but the prompt's length, whose remainder stays; a static cache's length goes with it, and the tokens
    before the pieces that a prefill ends with."""
    ahead = None if variant.cache_length is None else variant.cache_length - variant.prompt
    pieces = variant.chunks[-2:] if len(variant.chunks) > 2 else variant.chunks
    return replace(variant, prompt=1, cache_length=ahead, chunks=pieces), variant.prompt % _TILE, len(variant.chunks)


def _told(points: Sequence[_Point], at: int, places: Sequence[int], *, degree: int) -> StepTrace | None:
    """The trace at a place between points of equal structure: through the nearest, the rest of them on the curve."""
    order = sorted(range(len(points)), key=lambda index: (abs(places[index] - at), places[index]))
    below = next((index for index in order if places[index] < at), None)
    above = next((index for index in order if places[index] > at), None)
    if below is None or above is None:
        return None
    chosen = [below, above]
    for index in order:
        if len(chosen) < degree + 2 and index not in chosen and _alike(points[index].trace, points[below].trace):
            chosen.append(index)
    if len(chosen) < degree + 2 or not _alike(points[below].trace, points[above].trace):
        return None
    return _through([points[index].trace for index in chosen], [places[index] for index in chosen], at)


def _alike(one: StepTrace, other: StepTrace) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in _SAME) and all(
        getattr(one, name) == getattr(other, name) for name in _ALIKE
    )


def _through(traces: Sequence[StepTrace], places: Sequence[int], at: int) -> StepTrace | None:
    """The curve through all traces but the last, on which the last must lie, at `at`."""
    told = _Curve(places, at)
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        values = told.column([getattr(trace, name) for trace in traces])
        if values is None:
            return None
        columns[name] = values
    inputs = _known(told.value([trace.inputs[index][2] for trace in traces]) for index in range(len(traces[0].inputs)))
    shapes = told.shapes([trace.tensor_shape for trace in traces])
    tokens = told.value([trace.tokens_per_sample * trace.samples[0] for trace in traces])
    samples = told.value([trace.samples[0] for trace in traces])
    if shapes is None or tokens is None or samples is None or inputs is None:
        return None
    return replace(
        traces[0],
        **columns,
        inputs=[(name, slope, size) for (name, slope, _), size in zip(traces[0].inputs, inputs, strict=True)],
        tensor_shape=shapes,
        samples=(samples,),
        tokens_per_sample=tokens // samples,
    )


def _known(values: Iterable[T | None]) -> list[T] | None:
    """All of them, or None where one is not known."""
    found: list[T] = []
    for value in values:
        if value is None:
            return None
        found.append(value)
    return found


class _Curve:
    """Values at places, and what they say of another place."""

    def __init__(self, places: Sequence[int], at: int) -> None:
        *through, check = places
        self._at = [_weight(through, index, at) for index in range(len(through))]
        self._check = [_weight(through, index, check) for index in range(len(through))]

    def value(self, values: Sequence[int]) -> int | None:
        """None where the last value is off the curve through the others, or the told one is no whole number."""
        *through, last = values
        if sum(w * v for w, v in zip(self._check, through, strict=True)) != last:
            return None
        told = sum((w * v for w, v in zip(self._at, through, strict=True)), Fraction(0))
        return int(told) if told.denominator == 1 and told >= 0 else None

    def column(self, columns: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
        """Each row's; equal rows are looked at once."""
        rows, places = np.unique(np.stack(columns), axis=1, return_inverse=True)
        told = _known(self.value([int(value) for value in row]) for row in rows.T.tolist())
        if told is None:
            return None
        return np.asarray(told, dtype=columns[0].dtype)[places.reshape(-1)]

    def shapes(self, columns: Sequence[Sequence[str]]) -> list[str] | None:
        """The numbers in each text."""
        known: dict[tuple[str, ...], str | None] = {}
        for row in zip(*columns, strict=True):
            if row not in known:
                known[row] = self._shape(row)
        return _known(known[row] for row in zip(*columns, strict=True))

    def _shape(self, row: tuple[str, ...]) -> str | None:
        if len(set(row)) == 1:
            return row[0]
        if len({_NUMBER.sub("#", text) for text in row}) != 1:
            return None
        columns = zip(*(map(int, _NUMBER.findall(text)) for text in row), strict=True)
        numbers = _known(self.value(each) for each in columns)
        if numbers is None:
            return None
        left = iter(numbers)
        return _NUMBER.sub(lambda _: str(next(left)), row[0])


def _weight(places: Sequence[int], index: int, at: int) -> Fraction:
    """Lagrange's, of one place."""
    weight = Fraction(1)
    for other, place in enumerate(places):
        if other != index:
            weight *= Fraction(at - place, places[index] - place)
    return weight
