"""A trace over sequence lengths: sizes as exact polynomials of degree two in the length, which recordings prove.

Attention's products grow with the square of the length, all else in proportion to it or not at all; what follows rules
(`gpu_plan.planner.trace.rules`) is counted by something that does. Three recordings determine every number, all others
must lie on it to the byte: masks and kernels that change with the length then show, and end what is told.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.rules import Ruled
from gpu_plan.planner.trace.sizes.errors import NotLinearError

SIZES = ("bytes_fixed", "bytes_per_sample")
WORK = ("op_flops_fixed", "op_flops_per_sample", "op_bytes_fixed", "op_bytes_per_sample")
"""Whole numbers, kept as floats."""
_SAME = (
    *("kind", "subject", "category", "tensor_module", "tensor_operator", "tensor_parameter"),
    *("op_name", "op_module", "op_phase", "op_reads_at", "op_reads", "op_writes_at", "op_writes"),
    *("modules", "operator_names", "parameters", "buffer_bytes", "layout", "held", "tensor_origin"),
    *("host_reads", "notes", "samples"),
)
_PROVED = 4
"""Recordings of which one at least was not needed to determine the polynomials."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """How numbers grow from the first length on: by `slope` a token, and by `bend` times its square."""

    slope: IntArray
    bend: IntArray

    def at(self, base: IntArray, further: int) -> IntArray:
        """The numbers so many tokens further."""
        found: IntArray = base + (self.slope + self.bend * further) * further
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A trace of every length from `first` to `last`."""

    first: int
    last: int
    trace: StepTrace
    """At the first; what follows rules is still to be settled."""
    shapes: Sequence[str]
    """Shapes at the first that are not alike at every length, and which of them each storage has."""
    shape_of: IntArray
    grown: Mapping[str, Grown]
    """By column: sizes and work; `inputs`, `rules`, `shapes` and `tokens` as `_numbers` lists them."""

    def holds(self, length: int) -> bool:
        """Whether recordings stand on both sides of it."""
        return self.first <= length <= self.last

    def at(self, length: int) -> StepTrace:
        """The trace at a length, of which what follows rules is still to be settled."""
        further = length - self.first
        known = _numbers(self.trace, self.shapes)
        found = {name: self.grown[name].at(values, further) for name, values in known.items()}
        columns: dict[str, Any] = {name: found[name] for name in SIZES}
        columns |= {name: found[name].astype(np.float64) for name in WORK}
        inputs = found["inputs"].reshape(-1, 2).tolist()
        rules = found["rules"].reshape(-1, 2).tolist()
        return replace(
            self.trace,
            **columns,
            inputs=[(name, one, other) for (name, *_), (one, other) in zip(self.trace.inputs, inputs, strict=True)],
            tensor_rule=_with_counts(self.trace.tensor_rule, rules),
            tensor_shape=_shapes(self.shapes, self.shape_of, found["shapes"].tolist()),
            tokens_per_sample=int(found["tokens"][0]),
        )


def lengths_of(traces: Mapping[int, StepTrace]) -> Lengths:
    """The trace over all lengths of `traces`; NotLinearError where they have no polynomials in common."""
    lengths = sorted(traces)
    traces = {length: _without_ruled(traces[length]) for length in lengths}
    if len(lengths) < _PROVED:
        raise NotLinearError("too few lengths prove anything")
    first = traces[lengths[0]]
    for trace in traces.values():
        if not _alike(first, trace):
            raise NotLinearError("the step's structure changes with the length")
    together = list(zip(*(traces[length].tensor_shape for length in lengths), strict=True))
    number = {texts: place for place, texts in enumerate(dict.fromkeys(together))}
    if any(len({_NUMBER.sub("", text) for text in texts}) > 1 for texts in number):
        raise NotLinearError("some shape has other dimensions at another length")
    columns = list(zip(*number, strict=True)) or [()] * len(lengths)
    numbers = [_numbers(traces[length], texts) for length, texts in zip(lengths, columns, strict=True)]
    return Lengths(
        first=lengths[0],
        last=lengths[-1],
        trace=first,
        shapes=columns[0],
        shape_of=_flat([number[texts] for texts in together]),
        grown={name: _grown(lengths, [one[name] for one in numbers]) for name in numbers[0]},
    )


def longest(traces: Mapping[int, StepTrace]) -> list[Lengths]:
    """Spans of lengths with polynomials in common, each as long as it gets; what proves nothing is left out."""
    lengths, found = sorted(traces), list[Lengths]()
    start = 0
    while start < len(lengths):
        best: Lengths | None = None
        for end in range(start + _PROVED, len(lengths) + 1):
            try:
                best = lengths_of({length: traces[length] for length in lengths[start:end]})
            except NotLinearError:
                break
        if best is None:
            start += 1
        else:
            found.append(best)
            start = lengths.index(best.last)  # a length on a bend belongs to both
    return found


def _grown(lengths: Sequence[int], values: Sequence[IntArray]) -> Grown:
    """Divided differences of the first, the middle and the last, checked against all."""
    chosen = (0, len(lengths) // 2, len(lengths) - 1)
    (x0, y0), (x1, y1), (x2, y2) = ((lengths[at], values[at]) for at in chosen)
    low, high = _divided(y1 - y0, x1 - x0), _divided(y2 - y0, x2 - x0)
    bend = _divided(high - low, x2 - x1)
    grown = Grown(slope=low - bend * (x1 - x0), bend=bend)
    for length, known in zip(lengths, values, strict=True):
        if not np.array_equal(grown.at(y0, length - x0), known):
            raise NotLinearError("some size is no polynomial of the length")
    return grown


def _divided(values: IntArray, by: int) -> IntArray:
    if np.any(values % by):
        raise NotLinearError("some size does not grow by whole numbers")
    return values // by


def _without_ruled(trace: StepTrace) -> StepTrace:
    """The trace without the sizes of what follows rules, which are told once it is settled."""
    ruled = np.asarray([rule is not None for rule in trace.tensor_rule] or [False] * trace.num_tensors, dtype=np.bool_)
    columns: dict[str, Any] = {name: np.where(ruled, 0, getattr(trace, name)) for name in SIZES}
    shapes = zip(trace.tensor_shape, ruled.tolist(), strict=True)
    return replace(trace, **columns, tensor_shape=["" if is_ruled else text for text, is_ruled in shapes])


def _alike(one: StepTrace, other: StepTrace) -> bool:
    """Whether nothing but sizes tells two traces apart."""
    for name in _SAME:
        mine, theirs = getattr(one, name), getattr(other, name)
        if not (np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs):
            return False
    rules = [[None if ruled is None else ruled.rule for ruled in trace.tensor_rule] for trace in (one, other)]
    names = [[name for name, *_ in trace.inputs] for trace in (one, other)]
    whole = all(np.array_equal(getattr(other, name), np.floor(getattr(other, name))) for name in WORK)
    return whole and rules[0] == rules[1] and names[0] == names[1]


def _numbers(trace: StepTrace, shapes: Sequence[str]) -> dict[str, IntArray]:
    """Everything that may grow with the length, column by column."""
    found = {name: getattr(trace, name).astype(np.int64) for name in (*SIZES, *WORK)}
    found["inputs"] = _flat([size for _, *sizes in trace.inputs for size in sizes])
    ruled = [ruled for ruled in trace.tensor_rule if ruled is not None]
    found["rules"] = _flat([number for one in ruled for number in (one.fixed, one.per_sample)])
    found["shapes"] = _flat([int(number) for text in shapes for number in _NUMBER.findall(text)])
    found["tokens"] = _flat([trace.tokens_per_sample])
    return found


def _flat(values: list[int]) -> IntArray:
    return np.asarray(values, dtype=np.int64)


def _with_counts(rules: Sequence[Ruled | None], counts: list[list[int]]) -> list[Ruled | None]:
    left = iter(counts)
    return [None if ruled is None else Ruled(ruled.rule, *next(left)) for ruled in rules]


def _shapes(texts: Sequence[str], shape_of: IntArray, numbers: list[int]) -> list[str]:
    left = iter(numbers)
    known = [_NUMBER.sub(lambda _: str(next(left)), text) for text in texts]
    return [known[place] for place in shape_of.tolist()]


__all__ = ["SIZES", "WORK", "Grown", "Lengths", "lengths_of", "longest"]
