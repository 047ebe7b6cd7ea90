"""A trace of some micro batches as it is over others, whose temporaries follow rules that bend."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace, shape_at, shape_text
from gpu_plan.planner.trace.rules import Ruled
from gpu_plan.planner.trace.sizes.errors import NotLinearError


def line_through(low: IntArray, high: IntArray, at: int, span: int) -> tuple[IntArray, IntArray]:
    """Fixed part and slope of integers known at `at` and `at + span`; span 0 means one point.

    Slopes are rounded up: only kernels' temporaries, which count rows in whole tiles, have fractional ones.
    """
    if span == 0:
        return low, np.zeros_like(low)
    slope = -((low - high) // span)
    return low - slope * at, slope


def settled(trace: StepTrace, samples: Sequence[int]) -> StepTrace:
    """The trace for the micro batches from the first to the last of `samples`, within those of `trace`.

    One micro batch makes it a trace of that one alone, as if it were recorded there. Temporaries that take no bytes are
    not there. NotLinearError where a rule bends between the first and the last.
    """
    found = _alone(trace, samples[0]) if len(set(samples)) == 1 else replace(trace, samples=tuple(samples))
    places = [at for at, ruled in enumerate(trace.tensor_rule) if ruled is not None]
    if not places:
        return replace(found, tensor_rule=[])
    bytes_fixed, bytes_per_sample, shapes = (
        found.bytes_fixed.copy(),
        found.bytes_per_sample.copy(),
        list(found.tensor_shape),
    )
    absent = np.zeros(trace.num_tensors, dtype=np.bool_)
    for at in places:
        ruled = trace.tensor_rule[at]
        assert ruled is not None
        fixed, slope = _straight(ruled, samples[0], samples[-1])
        bytes_fixed[at], bytes_per_sample[at] = fixed, slope
        first, last = ruled.nbytes(samples[0]), ruled.nbytes(samples[-1])
        shapes[at] = f"{shape_text((first,), (last,), samples[0], samples[-1] - samples[0])} uint8"
        absent[at] = not last
    sized = replace(
        found, bytes_fixed=bytes_fixed, bytes_per_sample=bytes_per_sample, tensor_shape=shapes, tensor_rule=[]
    )
    return without(sized, absent) if absent.any() else sized


def _straight(ruled: Ruled, first: int, last: int) -> tuple[int, int]:
    """Fixed part and slope from `first` to `last`."""
    sizes = np.array([ruled.nbytes(at) for at in range(first, last + 1)], dtype=np.int64)
    fixed, slope = line_through(sizes[:1], sizes[-1:], first, last - first)
    if last > first:
        steps = np.arange(last - first + 1)
        off = np.abs((sizes - sizes[0]) * (last - first) - (sizes[-1] - sizes[0]) * steps)
        if bool(sizes.any()) != bool(sizes.all()) or np.any(off > 2 * ruled.rule.grain * (last - first)):
            raise NotLinearError("a kernel's temporary bends with the micro batch")
    return int(fixed[0]), int(slope[0])


def _alone(trace: StepTrace, micro_batch: int) -> StepTrace:
    """Every size as it is at one micro batch."""

    def at(fixed: Any, slope: Any) -> Any:
        return fixed + slope * micro_batch

    shapes = {text: shape_at(text, micro_batch) for text in set(trace.tensor_shape)}
    return replace(
        trace,
        bytes_fixed=at(trace.bytes_fixed, trace.bytes_per_sample),
        bytes_per_sample=np.zeros_like(trace.bytes_per_sample),
        op_flops_fixed=at(trace.op_flops_fixed, trace.op_flops_per_sample),
        op_flops_per_sample=np.zeros_like(trace.op_flops_per_sample),
        op_bytes_fixed=at(trace.op_bytes_fixed, trace.op_bytes_per_sample),
        op_bytes_per_sample=np.zeros_like(trace.op_bytes_per_sample),
        inputs=[(name, 0, at(fixed, slope)) for name, slope, fixed in trace.inputs],
        tensor_shape=[shapes[text] for text in trace.tensor_shape],
        samples=(micro_batch,),
    )


def without(trace: StepTrace, absent: NDArray[np.bool_]) -> StepTrace:
    """The trace without some storages that no operator reads or writes."""
    number = np.cumsum(~absent) - 1
    of_storage = (trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE)
    kept = ~(of_storage & absent[np.where(of_storage, trace.subject, 0)])
    kind, subject = trace.kind[kept], trace.subject[kept]
    of_storage = of_storage[kept]
    here = np.flatnonzero(~absent).tolist()

    def renumbered(ids: IntArray) -> IntArray:
        return np.where(ids >= 0, number[ids], ids)

    return replace(
        trace,
        kind=kind,
        subject=np.where(of_storage, number[np.where(of_storage, subject, 0)], subject),
        **{name: getattr(trace, name)[~absent] for name in _TENSORS},
        tensor_shape=[trace.tensor_shape[at] for at in here],
        tensor_origin=trace.tensor_origin and [trace.tensor_origin[at] for at in here],
        tensor_rule=trace.tensor_rule and [trace.tensor_rule[at] for at in here],
        held=[int(number[at]) for at in trace.held],
        op_reads=renumbered(trace.op_reads),
        op_writes=renumbered(trace.op_writes),
    )


_TENSORS = ("bytes_fixed", "bytes_per_sample", "category", "tensor_module", "tensor_operator", "tensor_parameter")
