"""Figures of a replayed rank and of a real one, side by side, under declared rules.

Left out of the real side, because they belong to gloo, to CPU kernels or to the host, and no GPU rank has them:

- what is allocated inside an operator named `c10d::...` or `gloo:...`, until it is freed: gloo copies inputs and
  outputs of its collectives, where NCCL works on the tensors it is given;
- the flat copy that `broadcast_coalesced` sends (`aten::flatten_dense_tensors`), and the few integers in which DDP
  compares parameter shapes and bucket orders (below 4 KiB): gloo's own thread can free them, which the profiler
  does not see; they live for a call, while DDP wraps the model and before a forward pass starts;
- the zero-padded copy in the CPU kernel of `_chunk_cat`, inside `fsdp::chunk_cat`: on CUDA it is one kernel that
  writes into the reduce-scatter input (pytorch aten/src/ATen/native/cuda/Shape.cu: _chunk_cat_cuda);
- operands that oneDNN packs anew for a 16-bit matrix product, allocated and freed inside `aten::mm` and its kin.

Left out of both sides, as in `tests.support.replay_cpu`: storages of at most 16 bytes and generator states.
"""

from dataclasses import asdict, dataclass

import numpy as np

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import IntArray
from tests.support.cpu_reference import Change, Reference
from tests.support.ranks.case import RankCase
from tests.support.replay_cpu import counted

_TRANSPORT = ("c10d::", "gloo:", "fsdp::chunk_cat")
_FLATTEN = "aten::flatten_dense_tensors"
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFigures:
    """Live bytes of one micro step, everything that stands included."""

    forward_peak: int
    forward_end: int
    """When outputs and loss are bound, before backward."""
    backward_peak: int
    backward_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """Live bytes of one rank over two iterations."""

    wrapped: int
    """Once the model is built and wrapped."""
    passes: tuple[PassFigures, ...]
    step_peaks: tuple[int, ...]
    rests: tuple[int, ...]
    """After `zero_grad` of each iteration."""

    def flat(self) -> dict[str, int]:
        """Every figure by name."""
        named = {"wrapped": self.wrapped}
        for number, figures in enumerate(self.passes):
            named.update({f"pass {number} {name}": value for name, value in asdict(figures).items()})
        for iteration, (peak, rest) in enumerate(zip(self.step_peaks, self.rests, strict=True)):
            named.update({f"step {iteration} peak": peak, f"rest {iteration}": rest})
        return named


def replayed(stream: RankStream, micro_batch: int) -> RankFigures:
    """Figures of a strategy's stream, in requested bytes."""
    sizes = counted(stream.requested(micro_batch))
    live = np.concatenate([[0], np.cumsum(stream.event_sign * sizes[stream.event_tensor])])
    segments = stream.event_segment
    steps = list(stream.step_segments)
    passes = []
    for segment in range(1, steps[-1]):
        if segment in steps:
            continue
        start, end = _bounds(segments, segment)
        turn = start + int(np.count_nonzero(~stream.event_in_backward[start:end]))
        passes.append(_pass(live, start, turn, end))
    spans = [_bounds(segments, segment) for segment in steps]
    return RankFigures(
        wrapped=int(live[_bounds(segments, 0)[1]]),
        passes=tuple(passes),
        step_peaks=tuple(int(live[start : end + 1].max()) for start, end in spans),
        rests=tuple(int(live[end]) for _, end in spans),
    )


def measured(reference: Reference, case: RankCase) -> RankFigures:
    """Figures of a real rank."""
    sizes = counted(np.asarray([c.nbytes for c in without_transport(reference, case.strategy)], dtype=np.int64))
    live = np.concatenate([[0], np.cumsum(sizes)])
    marks = reference.marks
    iterations = range(len([name for name in marks if name.startswith("rest:")]))
    suffixes = [f":{iteration}:{micro}" for iteration in iterations for micro in range(case.accumulation)]
    return RankFigures(
        wrapped=int(live[marks["wrapped"]]),
        passes=tuple(_pass(live, marks["begin" + s], marks["bound" + s], marks["backward_end" + s]) for s in suffixes),
        step_peaks=tuple(int(live[marks[f"step:{i}"] : marks[f"rest:{i}"] + 1].max()) for i in iterations),
        rests=tuple(int(live[marks[f"rest:{i}"]]) for i in iterations),
    )


def _bounds(segments: IntArray, segment: int) -> tuple[int, int]:
    found = np.searchsorted(segments, [segment, segment + 1])
    return int(found[0]), int(found[1])


def _pass(live: IntArray, start: int, turn: int, end: int) -> PassFigures:
    return PassFigures(
        forward_peak=int(live[start : turn + 1].max()),
        forward_end=int(live[turn]),
        backward_peak=int(live[turn : end + 1].max()),
        backward_end=int(live[end]),
    )


def without_transport(reference: Reference, strategy: str) -> list[Change]:
    """The changes in place, those that the rules leave out with zero bytes."""
    owners: dict[int, int] = {}
    changes = reference.changes
    kept = list(changes)
    unseen: dict[int, int] = {}
    for index, change in enumerate(changes):
        if change.nbytes > 0:
            if change.pointer in owners:
                # An address that is handed out again was free: one of gloo's threads freed it, unseen by the profiler.
                unseen[index] = owners[change.pointer]
            owners[change.pointer] = index
            joins = not strategy.startswith("zero") and _is_metadata(change, index, reference.marks)
            if joins or _is_transport(change, strategy):
                kept[index] = _without_bytes(change)
            continue
        owner = owners.pop(change.pointer, None)
        if owner is None:
            continue
        if kept[owner].nbytes == 0 or _is_packed_operand(changes[owner], change):
            kept[owner], kept[index] = _without_bytes(changes[owner]), _without_bytes(change)
    for index, owner in unseen.items():
        if strategy.startswith("zero") and _FLATTEN in changes[owner].path:
            index = owner + 1  # DeepSpeed drops a flattened bucket when it is reduced
        change = kept[index]
        kept[index] = Change(nbytes=change.nbytes - kept[owner].nbytes, path=change.path, pointer=change.pointer)
    return kept


def _without_bytes(change: Change) -> Change:
    return Change(nbytes=0, path=change.path, pointer=change.pointer)


def _is_transport(change: Change, strategy: str) -> bool:
    if strategy == "ddp" and _FLATTEN in change.path:
        return True
    return any(name.startswith(_TRANSPORT) for name in change.path)


def _is_metadata(change: Change, index: int, marks: dict[str, int]) -> bool:
    if change.nbytes >= _METADATA_BYTES:
        return False
    wrapping = marks["built"] <= index < marks["wrapped"] and change.path == ("aten::empty",)
    return wrapping or change.path == ("DistributedDataParallel.forward", "aten::empty")


def _is_packed_operand(made: Change, freed: Change) -> bool:
    return made.path == freed.path and bool(made.path) and made.path[-1] in _PRODUCTS


def differences(replay: RankFigures, real: RankFigures) -> dict[str, int]:
    """Figures that are not equal: replayed minus real."""
    ours, theirs = replay.flat(), real.flat()
    return {name: ours[name] - theirs[name] for name in ours if ours[name] != theirs[name]}


def replayed_curve(stream: RankStream, micro_batch: int) -> IntArray:
    """Live bytes of a stream at every turn from rising to falling and back, from the first batch on."""
    signed = stream.event_sign * counted(stream.requested(micro_batch))[stream.event_tensor]
    return _turns(signed, _bounds(stream.event_segment, 0)[1])


def measured_curve(reference: Reference, strategy: str) -> IntArray:
    """The same of a real rank."""
    sizes = counted(np.asarray([c.nbytes for c in without_transport(reference, strategy)], dtype=np.int64))
    return _turns(sizes, reference.marks["begin:0:0"])


def _turns(signed: IntArray, start: int) -> IntArray:
    """Neighbouring changes of one sign are one step: their order among themselves moves no maximum."""
    standing = int(signed[:start].sum())
    steps = signed[start:][signed[start:] != 0]
    live = standing + np.cumsum(steps)
    last_of_run = np.append(np.sign(steps[1:]) != np.sign(steps[:-1]), True)
    return np.asarray(live[last_of_run], dtype=np.int64)
