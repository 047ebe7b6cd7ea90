"""Turns recorded steps into a StepTrace whose bytes are linear in the micro batch.

Two recordings of equal structure at two micro batches determine every storage exactly; structures that differ
are never mixed.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.trace.events import (
    CATEGORY_INDEX,
    Category,
    IntArray,
    Kind,
    Mark,
    ModuleLayout,
    ParameterInfo,
    StepTrace,
    shape_text,
)
from gpu_plan.planner.trace.recording.recorder import RawTrace
from gpu_plan.planner.trace.rules import Ruled
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.settled import line_through, settled

Call = tuple[str, int]
"""File and line of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """Calls of a step after which something is done for each piece of the batch, and the modules in which it is."""

    calls: frozenset[Call]
    modules: frozenset[int]


NO_LOOPS = Loops(calls=frozenset(), modules=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A raw trace and the micro batch at which it was taken."""

    micro_batch: int
    raw: RawTrace
    inputs: tuple[tuple[str, int], ...]
    """Batch tensors: name and bytes."""
    tokens: int
    """Tokens in the micro batch."""
    notes: tuple[str, ...] = ()
    """What the recording assumes, one line each."""
    viewed: frozenset[str] = frozenset()
    """`numberless` names of the parameters that forward used through views which autograd keeps."""
    leaves: bool = False
    """Whether the model keeps something that was made in the step: frequencies of rotary embeddings, say."""
    read: frozenset[str] = frozenset()
    """Parameters that other modules read, as `ModuleLayout.read` has them."""
    loops: Loops = NO_LOOPS
    """What was done for each sample in turn: of another micro batch the structure is another one."""


def signature(raw: RawTrace) -> str:
    """Digest of everything in a step that does not depend on sizes."""
    digest = hashlib.sha256()
    digest.update(np.asarray(raw.kind, dtype=np.int64).tobytes())
    digest.update(np.asarray(raw.subject, dtype=np.int64).tobytes())
    for tensor in raw.tensors:
        digest.update(
            f"{tensor.dtype},{tensor.category},{tensor.module},{tensor.operator},{tensor.parameter};".encode()
        )
    for operator in raw.operators:
        digest.update(f"{operator.name},{operator.module},{operator.phase};".encode())
    return digest.hexdigest()


def fit(
    recordings: tuple[Recording, ...],
    parameters: list[ParameterInfo],
    buffer_bytes: list[tuple[str, int]],
    layout: ModuleLayout,
    notes: list[str],
    *,
    samples: tuple[int, ...] = (),
    unsettled: bool = False,
) -> StepTrace:
    """One recording gives a trace for its own micro batch; more, of equal signature, give the linear form, of which
    what follows rules is still to be `settled`, as of one where it is to be `unsettled`.

    The outer two determine it, those between must lie on it: kernels' temporaries may have kinks. `samples` are the
    micro batches that it stands for; those of the recordings by default.
    """
    low, high = recordings[0], recordings[-1]
    span = high.micro_batch - low.micro_batch
    rules = _rules(recordings)
    for between in recordings[1:-1]:
        _check_on_line(low, between, high)
    names = sorted({operator.name for operator in low.raw.operators} | {t.operator for t in low.raw.tensors})
    index = {name: position for position, name in enumerate(names)}

    def linear(column: Callable[[Recording], list[int]]) -> tuple[IntArray, IntArray]:
        return line_through(_column(column(low)), _column(column(high)), low.micro_batch, span)

    fixed, slope = linear(lambda one: [t.nbytes for t in one.raw.tensors])
    flops_fixed, flops_slope = linear(lambda one: [o.flops for o in one.raw.operators])
    moved_fixed, moved_slope = linear(lambda one: [o.moved_bytes for o in one.raw.operators])
    inputs_fixed, inputs_slope = linear(lambda one: [size for _, size in one.inputs])
    reads_at, reads = _ragged([o.reads for o in low.raw.operators])
    writes_at, writes = _ragged([o.writes for o in low.raw.operators])
    raw = low.raw
    trace = StepTrace(
        kind=np.asarray(raw.kind, dtype=np.int64),
        subject=np.asarray(raw.subject, dtype=np.int64),
        bytes_fixed=fixed,
        bytes_per_sample=slope,
        category=_categories(raw),
        tensor_module=_column([t.module for t in raw.tensors]),
        tensor_operator=_column([index[t.operator] for t in raw.tensors]),
        tensor_shape=[
            f"{shape_text(t.shape, last.shape, low.micro_batch, span)} {t.dtype}"
            for t, last in zip(raw.tensors, high.raw.tensors, strict=True)
        ],
        tensor_parameter=_column([t.parameter for t in raw.tensors]),
        modules=list(raw.modules),
        operator_names=names,
        op_name=_column([index[o.name] for o in raw.operators]),
        op_module=_column([o.module for o in raw.operators]),
        op_phase=_column([o.phase for o in raw.operators]),
        op_flops_fixed=flops_fixed.astype(np.float64),
        op_flops_per_sample=flops_slope.astype(np.float64),
        op_bytes_fixed=moved_fixed.astype(np.float64),
        op_bytes_per_sample=moved_slope.astype(np.float64),
        op_reads_at=reads_at,
        op_reads=reads,
        op_writes_at=writes_at,
        op_writes=writes,
        parameters=parameters,
        buffer_bytes=buffer_bytes,
        inputs=[(name, int(inputs_slope[i]), int(inputs_fixed[i])) for i, (name, _) in enumerate(low.inputs)],
        samples=samples or tuple(recording.micro_batch for recording in recordings),
        tokens_per_sample=low.tokens // low.micro_batch,
        layout=layout,
        tensor_origin=[t.origin for t in raw.tensors] if any(t.origin for t in raw.tensors) else [],
        tensor_rule=rules,
        host_reads=list(raw.host_reads),
        notes=list(dict.fromkeys((*notes, *low.notes))),
    )
    return trace if unsettled or len(recordings) > 1 else settled(trace, trace.samples)


def _categories(raw: RawTrace) -> IntArray:
    """What forward makes and frees again before backward is temporary, not an activation."""
    categories = _column([t.category for t in raw.tensors])
    for kind, subject in zip(raw.kind, raw.subject, strict=True):
        if kind == Kind.MARK and subject == Mark.BACKWARD:
            break
        if kind == Kind.FREE:
            categories[subject] = CATEGORY_INDEX[Category.TEMPORARY]
    return categories


def _column(values: list[int]) -> IntArray:
    return np.asarray(values, dtype=np.int64)


_TILE_SLACK = 64 * 1024
"""Bytes by which a kernel's temporary may leave the line because it rounds rows to tiles."""


def _check_on_line(low: Recording, between: Recording, high: Recording) -> None:
    off = _off(low, between, high)
    scratch = np.array([t.is_scratch for t in low.raw.tensors])
    span = high.micro_batch - low.micro_batch
    if np.any(off[~scratch]) or np.any(_fractions(low, high)[~scratch]) or np.any(off > _TILE_SLACK * span):
        raise NotLinearError("some storage does not grow linearly with the micro batch")


def _off(low: Recording, between: Recording, high: Recording) -> IntArray:
    """How far each storage lies from the line, times the span; ruled ones lie on none, and are not asked."""
    span = high.micro_batch - low.micro_batch
    step = between.micro_batch - low.micro_batch
    first, middle, last = (_column([t.nbytes for t in one.raw.tensors]) for one in (low, between, high))
    off: IntArray = np.abs((middle - first) * span - (last - first) * step)
    off[_are_ruled(low)] = 0
    return off


def _fractions(low: Recording, high: Recording) -> IntArray:
    first, last = (_column([t.nbytes for t in one.raw.tensors]) for one in (low, high))
    rest: IntArray = (last - first) % (high.micro_batch - low.micro_batch)
    rest[_are_ruled(low)] = 0
    return rest


def _are_ruled(one: Recording) -> NDArray[np.bool_]:
    return np.array([tensor.ruled is not None for tensor in one.raw.tensors], dtype=np.bool_)


def lie_exactly(recordings: tuple[Recording, ...]) -> bool:
    """Whether every storage between them has exactly the bytes of the line: tiles of kernels need not."""
    low, high = recordings[0], recordings[-1]
    return low is high or not (
        _fractions(low, high).any() or any(_off(low, one, high).any() for one in recordings[1:-1])
    )


def _rules(recordings: tuple[Recording, ...]) -> list[Ruled | None]:
    """By storage; their counts grow in whole steps. Empty where there is none."""
    low, high = recordings[0], recordings[-1]
    span = high.micro_batch - low.micro_batch
    found: list[Ruled | None] = []
    for tensors in zip(*(one.raw.tensors for one in recordings), strict=True):
        rules = [tensor.ruled for tensor in tensors if tensor.ruled is not None]
        if not rules:
            found.append(None)
            continue
        slope = (rules[-1].fixed - rules[0].fixed) // span if span else 0
        line = Ruled(rules[0].rule, rules[0].fixed - slope * low.micro_batch, slope)
        for one, ruled in zip(recordings, rules, strict=True):
            if (line.rule, line.count(one.micro_batch)) != (ruled.rule, ruled.fixed):
                raise NotLinearError("what a kernel's temporary is counted by does not grow linearly")
        found.append(line)
    return found if any(found) else []


def _ragged(rows: list[tuple[int, ...]]) -> tuple[IntArray, IntArray]:
    lengths = [len(row) for row in rows]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, _column([item for row in rows for item in row])
