"""A trace's operators as counted classes of equal work, so that a step is evaluated in microseconds."""

import functools
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.plain.among import among
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import FloatArray, IntArray, StepTrace

FORWARD, BACKWARD, RECOMPUTE = range(3)
NUM_PHASES = 3

_STRIDED = frozenset({"clone"})
"""They copy what does not lie together in memory: `contiguous` and `reshape` of transposed or expanded tensors."""
_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int64": 8, "bool": 1, "uint8": 1}
_GATHERS = frozenset({"embedding"})
"""They read as much of the table as they put out, not all of it."""
_ALLOCATES = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""They find memory and touch none of it: no kernel runs."""
_BATCHED = frozenset({"bmm", "_grouped_mm"})
_KEPT_TRACES = 16
_FEW = 64
"""More than there are rates, classes, phases and bytes of an element that is one; infinitely many are the most."""


class OperatorClass(IntEnum):
    """What bounds an operator, hence which published rate it gets."""

    MEMORY = 0
    MATMUL = 1
    FLASH_FORWARD = 2
    FLASH_BACKWARD = 3
    CUDNN_FORWARD = 4
    CUDNN_BACKWARD = 5
    FLOAT8 = 6


NUM_CLASSES = len(OperatorClass)
_FUSED_ATTENTION = (
    OperatorClass.FLASH_FORWARD,
    OperatorClass.FLASH_BACKWARD,
    OperatorClass.CUDNN_FORWARD,
    OperatorClass.CUDNN_BACKWARD,
)

_BACKWARD_SHARE_OF_MODEL = 4 / 5
"""Fused attention multiplies five matrices backward, one of which computes the scores anew (torch
torch/utils/flop_counter.py: sdpa_backward_flop_count)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Fused attention of one kind: what its rate depends on beside the class."""

    operator_class: OperatorClass
    causal: bool
    head_dim: int | None
    """None where the trace does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Distinct operators of one trace; every array has one entry per distinct operator."""

    operator_class: IntArray
    rate: IntArray
    """Which rate an operator gets: its class, or `NUM_CLASSES` plus the index of its kind in `attention`."""
    attention: tuple[Attention, ...]
    phase: IntArray
    count: FloatArray
    flops_fixed: FloatArray
    flops_per_sample: FloatArray
    bytes_fixed: FloatArray
    bytes_per_sample: FloatArray
    grouped: NDArray[np.bool_]
    """Which of them multiply each expert's tokens by its own weights: one call of many small products."""
    accumulates: NDArray[np.bool_]
    """Which of them add a weight's gradient to a buffer in fp32 (Megatron's gradient accumulation fusion)."""
    misaligned: NDArray[np.bool_]
    """Which of them have an operand whose rows begin at no multiple of 16 bytes, which tensor cores load at once."""
    allocates: NDArray[np.bool_]
    """Which of them only find memory."""
    wide: NDArray[np.bool_]
    """Which of them are products of fp32 matrices."""
    item_bytes: FloatArray
    """Bytes of an element where each has an address of its own to compute; infinite where runs of them share one."""

    def flops(self, micro_batch: int) -> FloatArray:
        """FLOPs of one call of each, never negative."""
        return np.maximum(self.flops_fixed + self.flops_per_sample * micro_batch, 0.0)

    def bytes(self, micro_batch: int) -> FloatArray:
        """Bytes moved by one call of each, never negative."""
        return np.maximum(self.bytes_fixed + self.bytes_per_sample * micro_batch, 0.0)

    def model_flops(self, micro_batch: int, attention_share: float = 1.0) -> float:
        """FLOPs of the model itself: no recomputed phase, no scores computed twice inside attention, of which the
        operators compute `attention_share`."""
        weight = np.where(self.phase == RECOMPUTE, 0.0, self.count)
        fused = among(self.operator_class, (OperatorClass.FLASH_BACKWARD, OperatorClass.CUDNN_BACKWARD))
        weight = np.where(fused, weight * _BACKWARD_SHARE_OF_MODEL, weight)
        weight = np.where(self.is_attention, weight / attention_share, weight)
        return float(weight @ self.flops(micro_batch))

    @property
    def is_attention(self) -> NDArray[np.bool_]:
        """Which of them are fused attention."""
        return among(self.operator_class, _FUSED_ATTENTION)

    def uses(self, *classes: OperatorClass) -> bool:
        """Whether an operator of one of the classes occurs."""
        return bool(among(self.operator_class, classes).any())


def class_of(name: str, has_flops: bool) -> OperatorClass:
    """Class of an operator by its ATen name; those without counted FLOPs move memory."""
    if not has_flops:
        return OperatorClass.MEMORY
    if name == "_scaled_mm":
        return OperatorClass.FLOAT8
    if "attention" not in name:
        return OperatorClass.MATMUL
    if "cudnn" in name:
        return OperatorClass.CUDNN_BACKWARD if "backward" in name else OperatorClass.CUDNN_FORWARD
    return OperatorClass.FLASH_BACKWARD if "backward" in name else OperatorClass.FLASH_FORWARD


def _attention(name: str) -> Attention | None:
    """What the recorder wrote behind the name of a fused attention (recording.operators.work: described)."""
    kernel, bracket, told = name.partition("[")
    if not bracket or "attention" not in kernel:
        return None
    masked, _, head = told.rstrip("]").partition(",")
    return Attention(
        operator_class=class_of(kernel, True), causal=masked == "causal", head_dim=int(head) if head.isdigit() else None
    )


def collect(trace: StepTrace, *, each: bool = False) -> Operators:
    """Groups a trace's operators: equal class, phase, FLOPs and bytes count as one with a multiplicity.

    `each`: every operator by itself, in the order in which they run.
    """
    flops_fixed, flops_slope = trace.op_flops_fixed, trace.op_flops_per_sample
    bytes_fixed, bytes_slope = _moved(trace)
    has_flops = (flops_fixed != 0) | (flops_slope != 0)
    with_flops = np.array([int(class_of(name, True)) for name in trace.operator_names], dtype=np.int64)
    classes = np.where(has_flops, with_flops[trace.op_name], int(OperatorClass.MEMORY))
    kinds = [_attention(name) for name in trace.operator_names]
    attention = tuple(dict.fromkeys(kind for kind in kinds if kind is not None))
    told = np.array([-1 if kind is None else NUM_CLASSES + attention.index(kind) for kind in kinds], dtype=np.int64)
    rates = np.where(has_flops & (told[trace.op_name] >= 0), told[trace.op_name], classes) if len(told) else classes
    shapes = _shapes(trace)
    items, grouped, misaligned = _item_bytes(trace, *shapes), _grouped(trace), has_flops & _misaligned(trace, *shapes)
    products = classes == OperatorClass.MATMUL
    wide = products & _wide(trace, *shapes)
    accumulates = products & ~grouped & _into_buffers(trace) & _writes_elsewhere(trace)
    allocates = _named(trace, _ALLOCATES)
    said = _as_one(rates, classes, trace.op_phase, items, grouped, accumulates, misaligned, wide, allocates)
    columns = (said, flops_fixed, flops_slope, bytes_fixed, bytes_slope)
    first, count = (np.arange(len(classes)), np.ones(len(classes))) if each else _groups(columns)
    return Operators(
        operator_class=classes[first],
        rate=rates[first],
        attention=attention,
        phase=np.asarray(trace.op_phase)[first],
        count=count,
        flops_fixed=flops_fixed[first],
        flops_per_sample=flops_slope[first],
        bytes_fixed=bytes_fixed[first],
        bytes_per_sample=bytes_slope[first],
        grouped=grouped[first],
        accumulates=accumulates[first],
        misaligned=misaligned[first],
        allocates=allocates[first],
        wide=wide[first],
        item_bytes=items[first],
    )


def written_by(trace: StepTrace, operator: int | np.integer[Any]) -> IntArray:
    """Tensors of the trace that an operator writes."""
    found: IntArray = trace.op_writes[trace.op_writes_at[operator] : trace.op_writes_at[operator + 1]]
    return found[found >= 0]


def _moved(trace: StepTrace) -> tuple[FloatArray, FloatArray]:
    """Bytes moved, fixed and per sample; gathers count what they put out, twice, and what only allocates nothing."""
    touched = ~_named(trace, _ALLOCATES)
    fixed, slope = trace.op_bytes_fixed * touched, trace.op_bytes_per_sample * touched
    gathers = [index for index, name in enumerate(trace.operator_names) if name in _GATHERS]
    if not gathers:
        return fixed, slope
    fixed, slope = fixed.copy(), slope.copy()
    for operator in np.flatnonzero(among(trace.op_name, gathers)):
        written = written_by(trace, operator)
        fixed[operator] = 2 * trace.bytes_fixed[written].sum()
        slope[operator] = 2 * trace.bytes_per_sample[written].sum()
    return fixed, slope


def _grouped(trace: StepTrace) -> NDArray[np.bool_]:
    """Batched products of experts, and gradients of experts' weights that go into a buffer: each is a call of its own
    in the trace, and one of all experts in Transformer Engine (grouped_linear.py: general_grouped_gemm)."""
    of_experts = np.array(["experts" in name.split(".") for name in trace.modules] or [False])
    inside = np.where(trace.op_module >= 0, of_experts[np.clip(trace.op_module, 0, len(of_experts) - 1)], False)
    return np.asarray(inside & (_named(trace, _BATCHED) | _into_buffers(trace)), dtype=np.bool_)


def _into_buffers(trace: StepTrace) -> NDArray[np.bool_]:
    """Products that write into what was there before, no tensor of the trace (planner.trace.megatron.products.linear:
    weight_gradient)."""
    counts = np.concatenate([[0], np.cumsum(np.asarray(trace.op_writes) >= 0)])
    writes = counts[trace.op_writes_at[1:]] > counts[trace.op_writes_at[:-1]]
    return np.asarray(_named(trace, frozenset({"mm"})) & ~writes, dtype=np.bool_)


def _writes_elsewhere(trace: StepTrace) -> NDArray[np.bool_]:
    """Operators that say of what they write that it is no tensor of the trace."""
    counts = np.concatenate([[0], np.cumsum(np.asarray(trace.op_writes) < 0)])
    return np.asarray(counts[trace.op_writes_at[1:]] > counts[trace.op_writes_at[:-1]], dtype=np.bool_)


def _named(trace: StepTrace, names: frozenset[str]) -> NDArray[np.bool_]:
    return among(trace.op_name, [index for index, name in enumerate(trace.operator_names) if name in names])


def _misaligned(trace: StepTrace, shapes: IntArray, names: list[str]) -> NDArray[np.bool_]:
    odd = np.array([_is_odd(shape) for shape in names])[shapes]
    return _any_of(trace.op_reads, trace.op_reads_at, odd) | _any_of(trace.op_writes, trace.op_writes_at, odd)


def _shapes(trace: StepTrace) -> tuple[IntArray, list[str]]:
    """Which shape each tensor has, and the shapes: a step has few."""
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(trace.tensor_shape or ("",)))}
    return np.array([numbers[shape] for shape in trace.tensor_shape] or [0], dtype=np.int64), list(numbers)


def _wide(trace: StepTrace, shapes: IntArray, names: list[str]) -> NDArray[np.bool_]:
    """Operators that write fp32 tensors and read no others: a router's products beside experts in 16 bits."""
    wide = np.array([shape.endswith(" float32") for shape in names])[shapes]
    written, read = _any_of(trace.op_writes, trace.op_writes_at, wide), (trace.op_reads, trace.op_reads_at)
    return written & _any_of(*read, wide) & ~_any_of(*read, ~wide)


def _any_of(tensors: IntArray, at: IntArray, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which operators read, or write, a tensor that is flagged."""
    flagged = np.where(tensors >= 0, flags[np.clip(tensors, 0, len(flags) - 1)], False)
    counts = np.concatenate([[0], np.cumsum(flagged)])
    return np.asarray(counts[at[1:]] > counts[at[:-1]], dtype=np.bool_)


@functools.lru_cache(maxsize=4096)
def _is_odd(shape: str) -> bool:
    """Whether rows of a 16-bit matrix, `[4096, 50257] bfloat16`, begin at no multiple of 16 bytes."""
    sizes, _, dtype = shape.rpartition("] ")
    row = sizes.rpartition(", ")[2]
    return _ITEM_BYTES.get(dtype) == 2 and ", " in sizes and row.isdigit() and int(row) % 8 != 0


def _item_bytes(trace: StepTrace, shapes: IntArray, names: list[str]) -> FloatArray:
    """Bytes of an element of each strided copy; infinite for every other operator."""
    found = np.full(len(trace.op_name), np.inf)
    operators = np.flatnonzero(_named(trace, _STRIDED))
    begins = trace.op_writes_at[operators]
    counts = trace.op_writes_at[operators + 1] - begins
    places = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    written = np.asarray(trace.op_writes)[places]
    sizes = np.array([_ITEM_BYTES.get(name.rpartition(" ")[2], np.inf) for name in names])[shapes]
    np.minimum.at(found, np.repeat(operators, counts)[written >= 0], sizes[written[written >= 0]])
    return found


def _as_one(*columns: NDArray[Any]) -> IntArray:
    """One number of rows of a few bytes each, which sorts them as their columns do, the last one first."""
    found: IntArray = np.zeros(len(columns[0]), np.int64)
    for column in reversed(columns):
        found = found * _FEW + np.minimum(column, _FEW - 1).astype(np.int64)
    return found


def _groups(columns: tuple[NDArray[np.generic], ...]) -> tuple[IntArray, FloatArray]:
    """First row and size of each group of equal rows."""
    order = np.lexsort(columns)
    if not len(order):
        return np.zeros(0, np.int64), np.zeros(0)
    new = np.zeros(len(order), bool)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    return order[starts], np.diff(np.append(starts, len(order))).astype(np.float64)


class OperatorCache:
    """Collected operators of the traces seen last. Traces are not changed once they are made."""

    def __init__(self) -> None:
        # The trace is held with its result: an id means nothing once its object is gone.
        self._kept: OrderedDict[tuple[int, bool], tuple[StepTrace, Operators]] = OrderedDict()

    def of(self, trace: StepTrace, *, each: bool = False) -> Operators:
        """Operators of `trace`, collected once; `each` as in `collect`."""
        key = id(trace), each
        found = self._kept.pop(key, None) or (trace, collect(trace, each=each))
        self._kept[key] = found
        if len(self._kept) > _KEPT_TRACES:
            self._kept.popitem(last=False)
        return found[1]
