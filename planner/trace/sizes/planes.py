"""A generation of every prompt and batch within recorded ones: bytes and work are whole-number polynomials of both.

At most quadratic in the prompt's length and linear in the batch: six recordings determine every number, all others must
lie on it to the byte, and everything that is no number must be the same in all. Arrays alone: nothing here imports
torch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.rules import SplitKeys
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.settled import without

Size = tuple[int, int]
"""Tokens of the prompt, and samples of the batch."""
_BYTES, _WORK = ("bytes_fixed",), ("op_flops_fixed", "op_bytes_fixed")
"""What changes with size; a generation's recording holds its own batch, so that nothing is per sample."""
_SIZED = frozenset({*_BYTES, *_WORK, "inputs", "tensor_shape", "tensor_rule", "tokens_per_sample", "samples"})
_NUMBER = re.compile(r"\d+")
_PROVED = 1
"""Recordings that were not needed to determine the polynomials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A storage whose bytes are those of `SplitKeys`."""

    place: int
    heads: int
    queries: int
    width: int
    samples: int
    """At the least size, as are the keys."""
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A generation of every size from `least` to `most`."""

    least: Size
    most: Size
    trace: StepTrace
    """At the least."""
    shapes: Sequence[str]
    """Shapes at the least that are not alike at every size, and which of them each storage has."""
    shape_of: IntArray
    splits: Sequence["Split"]
    """What follows `SplitKeys`, which has no bytes in `trace`."""
    grown: Mapping[str, IntArray]
    """By column, for each of `_terms` but the first: how much of it each number has, [terms, numbers]."""

    def holds(self, size: Size) -> bool:
        """Whether recordings stand around it."""
        return all(low <= at <= high for low, at, high in zip(self.least, size, self.most, strict=True))

    def at(self, size: Size, sm_count: int) -> StepTrace:
        """The generation of a size, on a device of so many multiprocessors."""
        terms = np.asarray(_terms(size, self.least, len(self.grown["tokens"]) + 1)[1:], dtype=np.int64)
        known = _numbers(self.trace, self.shapes, self.splits)
        found = {name: values + terms @ self.grown[name] for name, values in known.items()}
        left = iter(found["shapes"].tolist())
        texts = [_NUMBER.sub(lambda _: str(next(left)), text) for text in self.shapes]
        inputs = zip(self.trace.inputs, found["inputs"].tolist(), strict=True)
        columns: dict[str, Any] = {name: found[name] for name in _BYTES}
        columns |= {name: found[name].astype(np.float64) for name in _WORK}
        trace = replace(
            self.trace,
            **columns,
            inputs=[(name, slope, taken) for (name, slope, _), taken in inputs],
            tensor_shape=[texts[place] for place in self.shape_of.tolist()],
            tokens_per_sample=int(found["tokens"][0]),
            samples=(size[1],),
        )
        return _with_splits(trace, self.splits, found["splits"].reshape(-1, 2).tolist(), sm_count)


def plane_of(traces: Mapping[Size, StepTrace]) -> Plane:
    """The generation over all sizes of `traces`, of one batch or of several; NotLinearError where they have no
    polynomials in common, or too few of them to prove it."""
    sizes = sorted(traces)
    ruled = {size: _splits(trace) for size, trace in traces.items()}
    traces = {size: _without_split(trace) for size, trace in traces.items()}
    first = traces[sizes[0]]
    if len({tuple((one.place, one.heads, one.queries, one.width) for one in splits) for splits in ruled.values()}) > 1:
        raise NotLinearError("keys are split otherwise at another size")
    if not all(_alike(first, trace) for trace in traces.values()):
        raise NotLinearError("the generation's structure changes with its size")
    together = list(zip(*(traces[size].tensor_shape for size in sizes), strict=True))
    number = {texts: place for place, texts in enumerate(dict.fromkeys(together))}
    if any(len({_NUMBER.sub("", text) for text in texts}) > 1 for texts in number):
        raise NotLinearError("some shape has other dimensions at another size")
    columns = list(zip(*number, strict=True)) or [()] * len(sizes)
    numbers = [_numbers(traces[size], texts, ruled[size]) for size, texts in zip(sizes, columns, strict=True)]
    least, most = sizes[0], (max(prompt for prompt, _ in sizes), max(batch for _, batch in sizes))
    if least[1] != min(batch for _, batch in sizes):
        raise NotLinearError("the smallest batch is not recorded at the shortest prompt")
    grown = {name: _grown(sizes, [one[name] for one in numbers]) for name in numbers[0]}
    return Plane(
        least=least,
        most=most,
        trace=first,
        shapes=columns[0],
        shape_of=np.asarray([number[texts] for texts in together], dtype=np.int64),
        splits=ruled[least],
        grown=grown,
    )


def _terms(size: Size, least: Size, count: int) -> list[int]:
    """1, the tokens further than the least, and their pairs, of which whole numbers make every whole-number polynomial;
    then each of these times the samples further, where there are several batches."""
    tokens, samples = size[0] - least[0], size[1] - least[1]
    alone = [1, tokens, tokens * (tokens - 1) // 2]
    return [*alone, *(term * samples for term in alone)][:count]


def _grown(sizes: Sequence[Size], values: Sequence[IntArray]) -> IntArray:
    """How much each number has of each term but the first, in whole numbers, checked against all sizes."""
    count = 3 if len({batch for _, batch in sizes}) == 1 else 6
    rows = [_terms(size, sizes[0], count) for size in sizes]
    chosen, inverse = _solved(rows, count)
    if len(sizes) < count + _PROVED:
        raise NotLinearError("too few sizes prove anything")
    distinct, places = np.unique(np.stack(values), axis=1, return_inverse=True)
    known = distinct.astype(object)
    told = inverse @ known[chosen]
    if any(value.denominator != 1 for value in told.flat):
        raise NotLinearError("some size does not grow by whole numbers")
    if np.any(np.asarray(rows, dtype=object) @ told != known):
        raise NotLinearError("some size is no polynomial of prompt and batch")
    found: IntArray = told[1:].astype(np.int64)[:, places.reshape(-1)]
    return found


def _solved(rows: Sequence[Sequence[int]], count: int) -> tuple[list[int], Any]:
    """Which rows determine the terms, the first that do, and the inverse of their matrix. NotLinearError where none."""
    chosen: list[int] = []
    left: list[list[Fraction]] = []
    for place, row in enumerate(rows):
        reduced = [Fraction(value) for value in row]
        for other in left:
            at = next(index for index, value in enumerate(other) if value)
            factor = reduced[at] / other[at]
            reduced = [value - factor * its for value, its in zip(reduced, other, strict=True)]
        if any(reduced):
            chosen.append(place)
            left.append(reduced)
        if len(chosen) == count:
            return chosen, _inverse([rows[at] for at in chosen])
    raise NotLinearError("the sizes do not determine the polynomials")


def _inverse(rows: Sequence[Sequence[int]]) -> Any:
    """Gauss and Jordan's, in fractions."""
    count = len(rows)
    both = [[Fraction(v) for v in row] + [Fraction(int(i == at)) for i in range(count)] for at, row in enumerate(rows)]
    for at in range(count):
        pivot = next(row for row in range(at, count) if both[row][at])
        both[at], both[pivot] = both[pivot], both[at]
        both[at] = [value / both[at][at] for value in both[at]]
        for row in range(count):
            if row != at and both[row][at]:
                factor = both[row][at]
                both[row] = [value - factor * its for value, its in zip(both[row], both[at], strict=True)]
    found = np.empty((count, count), dtype=object)
    for at in range(count):
        found[at] = both[at][count:]
    return found


def _alike(one: StepTrace, other: StepTrace) -> bool:
    """Whether nothing but sizes tells two generations apart."""
    for name in (field.name for field in fields(one) if field.name not in _SIZED):
        mine, theirs = getattr(one, name), getattr(other, name)
        if not (np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs):
            return False
    whole = all(np.array_equal(getattr(other, name), np.floor(getattr(other, name))) for name in _WORK)
    return whole and [entry[:2] for entry in one.inputs] == [entry[:2] for entry in other.inputs]


def _numbers(trace: StepTrace, shapes: Sequence[str], splits: Sequence[Split]) -> dict[str, IntArray]:
    """Everything that may grow with the size, column by column."""
    found = {name: getattr(trace, name).astype(np.int64) for name in (*_BYTES, *_WORK)}
    found["inputs"] = _flat([taken for *_, taken in trace.inputs])
    found["shapes"] = _flat([int(number) for text in shapes for number in _NUMBER.findall(text)])
    found["splits"] = _flat([number for one in splits for number in (one.samples, one.keys)])
    found["tokens"] = _flat([trace.tokens_per_sample])
    return found


def _flat(values: list[int]) -> IntArray:
    return np.asarray(values, dtype=np.int64)


def _splits(trace: StepTrace) -> list[Split]:
    """Of a trace whose rules are left to be settled. NotLinearError where it follows others."""
    found = []
    for place, ruled in enumerate(trace.tensor_rule):
        if ruled is not None:
            if not isinstance(rule := ruled.rule, SplitKeys):
                raise NotLinearError("a kernel's temporary follows another rule")
            own = {"heads": rule.heads, "queries": rule.queries, "width": rule.width, "keys": rule.keys}
            found.append(Split(place=place, samples=ruled.count(trace.samples[0]), **own))
    return found


def _without_split(trace: StepTrace) -> StepTrace:
    """The trace without the bytes of what follows rules."""
    if not trace.tensor_rule:
        return trace
    ruled = np.asarray([rule is not None for rule in trace.tensor_rule], dtype=np.bool_)
    shapes = [
        "" if rule is not None else text for rule, text in zip(trace.tensor_rule, trace.tensor_shape, strict=True)
    ]
    return replace(trace, bytes_fixed=np.where(ruled, 0, trace.bytes_fixed), tensor_shape=shapes, tensor_rule=[])


def _with_splits(trace: StepTrace, splits: Sequence[Split], sizes: list[list[int]], sm_count: int) -> StepTrace:
    """The trace with what keys that are split take; where they are not, it is not there."""
    if not splits:
        return trace
    taken, shapes = trace.bytes_fixed.copy(), list(trace.tensor_shape)
    absent = np.zeros(trace.num_tensors, dtype=np.bool_)
    for one, (samples, keys) in zip(splits, sizes, strict=True):
        rule = SplitKeys(heads=one.heads, queries=one.queries, keys=keys, width=one.width, sm_count=sm_count)
        nbytes = rule.nbytes(samples)
        taken[one.place], shapes[one.place], absent[one.place] = nbytes, f"[{nbytes}] uint8", not nbytes
    found = replace(trace, bytes_fixed=taken, tensor_shape=shapes)
    return without(found, absent) if absent.any() else found


__all__ = ["Plane", "Size", "Split", "plane_of"]
