"""Figures of a trace and of a measured CPU step, side by side, under declared rules.

Two kinds of storage are left out of the `counted` figures, on both sides alike, because a GPU has none of them:

- those of at most 16 bytes: on the CPU every Python number in an operator becomes a tensor of 4 or 8 bytes, and
  autograd saves some of them; on CUDA they are kernel arguments, or tensors on the host;
- the CPU generator's state, which activation checkpointing saves for every block; it is on the host.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray, Kind, Mark, StepTrace
from tests.support.cpu_reference import Reference

HOST_SCALAR_BYTES = 16
_GRADIENTS = CATEGORY_INDEX[Category.GRADIENTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Bytes above what stood before the step (parameters, buffers and inputs)."""

    peak: int
    forward_end: int
    """When the loss is bound, before backward."""
    backward_end: int


def counted(sizes: IntArray) -> IntArray:
    """Signed sizes with those that the rules leave out set to zero."""
    state = torch.get_rng_state().numel()
    magnitude = np.abs(sizes)
    return np.where((magnitude <= HOST_SCALAR_BYTES) | (magnitude == state), 0, sizes)


def signed_bytes(trace: StepTrace, micro_batch: int) -> IntArray:
    """Per event: bytes that come to life (positive) or go (negative)."""
    storage = (trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE)
    sizes = trace.tensor_bytes(micro_batch)[np.where(storage, trace.subject, 0)]
    return np.where(trace.kind == Kind.ALLOC, sizes, np.where(trace.kind == Kind.FREE, -sizes, 0))


def replayed(trace: StepTrace, micro_batch: int, *, raw: bool = False) -> Figures:
    """The CPU allocator hands out what is asked for, so the live bytes are a running sum."""
    signed = signed_bytes(trace, micro_batch)
    return _figures(trace, signed if raw else counted(signed), 0)


def replayed_return(trace: StepTrace, micro_batch: int) -> int:
    """Live bytes when the model has returned, before a loss that the loop makes itself."""
    live = np.cumsum(counted(signed_bytes(trace, micro_batch)))
    return int(live[trace.mark_position(Mark.OUTPUTS_BOUND)])


def replayed_phases(trace: StepTrace, micro_batch: int) -> tuple[int, int]:
    """Highest live bytes of forward and of backward, of a trace whose step has one pass of each."""
    live = np.cumsum(counted(signed_bytes(trace, micro_batch)))
    turn, end = trace.mark_position(Mark.BACKWARD), trace.mark_position(Mark.BACKWARD_END)
    return max(0, int(live[: turn + 1].max())), int(live[turn : end + 1].max())


def measured_phases(reference: Reference) -> tuple[int, int]:
    """Likewise of a real step in which `backward` is marked."""
    live = np.cumsum(counted(np.asarray([change.nbytes for change in reference.changes], dtype=np.int64)))
    turn, end = reference.marks["backward"], reference.marks["backward_end"]
    return max(0, int(live[reference.marks["begin"] : turn].max())), int(live[turn - 1 : end].max())


def replayed_second(trace: StepTrace, micro_batch: int, *, accumulate: bool) -> Figures:
    """The second iteration of a loop that keeps `outputs` and `loss` until it rebinds them.

    Gradients were freed before it (`accumulate=False`), or stand and are added to in place, each new one gone as
    soon as it has been added.
    """
    sizes = counted(trace.tensor_bytes(micro_batch))
    signed = counted(signed_bytes(trace, micro_batch))
    lasting = np.ones(trace.num_tensors, dtype=bool)
    lasting[trace.subject[trace.kind == Kind.FREE]] = False
    gradients = lasting & (trace.category == _GRADIENTS)
    held = int(sizes[lasting & ~gradients].sum())
    signed[trace.mark_position(Mark.OUTPUTS_BOUND)] -= held
    standing = held
    if accumulate:
        standing += int(sizes[gradients].sum())
        by_parameter = {int(trace.tensor_parameter[t]): int(sizes[t]) for t in np.flatnonzero(gradients)}
        for position in np.flatnonzero(trace.kind == Kind.GRADIENT):
            signed[position] -= by_parameter.get(int(trace.subject[position]), 0)
    return _figures(trace, signed, standing)


def _figures(trace: StepTrace, signed: IntArray, standing: int) -> Figures:
    live = standing + np.cumsum(signed)
    return Figures(
        peak=max(standing, int(live.max())),
        forward_end=int(live[trace.mark_position(Mark.BACKWARD)]),
        backward_end=int(live[trace.mark_position(Mark.BACKWARD_END)]),
    )


def measured(reference: Reference, *, raw: bool = False, iteration: int = 0) -> Figures:
    """Figures of a real step, or of one iteration of a real loop."""
    sizes = np.asarray([change.nbytes for change in reference.changes], dtype=np.int64)
    live = np.cumsum(sizes if raw else counted(sizes))
    suffix = f":{iteration}" if iteration else ""
    start = reference.marks[f"begin{suffix}"]
    end = reference.marks[f"backward_end{suffix}"]
    return Figures(
        peak=int(live[max(0, start - 1) : end].max()),
        forward_end=int(live[reference.marks[f"bound{suffix}"] - 1]),
        backward_end=int(live[end - 1]),
    )


def unmatched(trace: StepTrace, micro_batch: int, reference: Reference) -> dict[str, int]:
    """Counted allocations that only one side made, as `bytes: operator` to how often (negative: only replayed)."""
    end = reference.marks["backward_end"]
    real: Counter[int] = Counter()
    names: dict[int, str] = {}
    for change in reference.changes[:end]:
        if change.nbytes > 0:
            real[change.nbytes] += 1
            names.setdefault(change.nbytes, "/".join(change.path[-2:]))
    replay: Counter[int] = Counter()
    sizes = trace.tensor_bytes(micro_batch)
    for tensor in trace.subject[trace.kind == Kind.ALLOC]:
        replay[int(sizes[tensor])] += 1
        names.setdefault(int(sizes[tensor]), trace.operator_names[trace.tensor_operator[tensor]])
    found = {}
    for nbytes in sorted(real.keys() | replay.keys(), reverse=True):
        difference = real[nbytes] - replay[nbytes]
        if difference and counted(np.asarray([nbytes]))[0]:
            found[f"{nbytes}: {names[nbytes]}"] = difference
    return found


def same_stream(trace: StepTrace, micro_batch: int, reference: Reference) -> bool:
    """Whether both sides allocate and free the same counted sizes in the same order, event by event."""
    sizes = [change.nbytes for change in reference.changes[: reference.marks["backward_end"]]]
    real = counted(np.asarray(sizes, dtype=np.int64))
    replay = counted(signed_bytes(trace, micro_batch))
    return np.array_equal(real[real != 0], replay[replay != 0])
