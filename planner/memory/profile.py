"""What a rank's stream means in figures: peak, its phase, its composition, and the tensors that stand there."""

from collections.abc import Callable
from dataclasses import field
from functools import cache

import numpy as np

from gpu_plan.planner.memory.stream.assembling import among
from gpu_plan.planner.memory.stream.moments import TRAINING_PHASES, Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import CATEGORIES, Category, IntArray, shape_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTensor:
    """One storage alive at the peak."""

    nbytes: int
    category: Category
    module: str
    operator: str
    shape: str
    basis: str
    """`traced` for what the step itself made, `source` for what a strategy's real code is known to make."""
    origin: str = ""
    """Line of the user's own script that made it, where one is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakDetails:
    """What a profile says beside its peak; bytes as the allocator charges them."""

    phase_of_peak: Phase
    at_peak: dict[Category, int]
    at_rest_bytes: int
    """Allocated between iterations, after the optimizer step."""
    phase_peaks: dict[Phase, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryProfile:
    """Figures of one rank at one micro batch; of what the peak alone rules out nobody asks the details."""

    peak_allocated_bytes: int
    details: Callable[[], PeakDetails] = field(repr=False)

    @property
    def phase_of_peak(self) -> Phase:
        """Where the peak is."""
        return self.details().phase_of_peak

    @property
    def at_peak(self) -> dict[Category, int]:
        """What stands at the peak, by category."""
        return self.details().at_peak

    @property
    def at_rest_bytes(self) -> int:
        """Allocated between iterations, after the optimizer step."""
        return self.details().at_rest_bytes

    @property
    def phase_peaks(self) -> dict[Phase, int]:
        """Most that stands in each phase."""
        return self.details().phase_peaks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryProfile) or self.peak_allocated_bytes != other.peak_allocated_bytes:
            return False
        return self.details is other.details or self.details() == other.details()

    def __hash__(self) -> int:
        return hash(self.peak_allocated_bytes)


def known(peak_allocated_bytes: int, details: PeakDetails) -> MemoryProfile:
    """A profile whose details are worked out already."""
    return MemoryProfile(peak_allocated_bytes=peak_allocated_bytes, details=lambda: details)


_NOTHING = known(
    0,
    PeakDetails(
        phase_of_peak=Phase.LOAD,
        at_peak=dict.fromkeys(CATEGORIES, 0),
        at_rest_bytes=0,
        phase_peaks=dict.fromkeys(TRAINING_PHASES, 0),
    ),
)


def measure(stream: RankStream, micro_batch: int, blocks: IntArray | None = None) -> MemoryProfile:
    """Evaluates a stream at a micro batch.

    `blocks`: bytes that the simulated allocator charged for each storage; otherwise each is rounded up by itself.
    """
    if not len(stream.event_sign):
        return _NOTHING  # model states alone, all of them on the host
    if blocks is None:
        details = cache(lambda: _details(stream, stream.sizes(micro_batch)))
        return MemoryProfile(peak_allocated_bytes=stream.peak(micro_batch), details=details)
    live = np.cumsum(stream.event_sign * blocks[stream.event_tensor])
    return MemoryProfile(peak_allocated_bytes=int(live.max()), details=cache(lambda: _details(stream, blocks)))


def _details(stream: RankStream, sizes: IntArray) -> PeakDetails:
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    peak_at = int(np.argmax(live))
    counts = alive_at(stream, peak_at)
    by_category = np.bincount(stream.category, weights=sizes * counts, minlength=len(CATEGORIES))
    rests = int(np.searchsorted(stream.event_segment, stream.step_segments[-1], side="right")) - 1
    return PeakDetails(
        phase_of_peak=phase_at(stream, peak_at),
        at_peak={category: int(by_category[index]) for index, category in enumerate(CATEGORIES)},
        at_rest_bytes=int(live[rests]),
        phase_peaks=_generation_peaks(stream, live) if stream.phases else _phase_peaks(stream, live),
    )


def alive_at(stream: RankStream, position: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """1 for every storage alive just after an event, else 0."""
    upto = slice(0, position + 1)
    return np.bincount(stream.event_tensor[upto], weights=stream.event_sign[upto], minlength=len(stream.fixed)).astype(
        np.int64
    )


def phase_at(stream: RankStream, position: int) -> Phase:
    """Phase in which an event lies."""
    segment = int(stream.event_segment[position])
    if stream.phases:
        return stream.phases[segment]
    if segment == 0:
        return Phase.LOAD
    if segment == stream.evaluation_segment:
        return Phase.EVALUATION
    if segment in dict(stream.between):
        return dict(stream.between)[segment]
    if segment in stream.step_segments:
        return Phase.STEP
    return Phase.BACKWARD if stream.event_in_backward[position] else Phase.FORWARD


def _phase_peaks(stream: RankStream, live: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> dict[Phase, int]:
    """Most that stands in each phase, what it begins with included: a counter that is reset there starts from that."""
    segments = stream.event_segment
    # Runs of events of one segment and one direction: backward is what a pass ends with.
    turns = (segments[1:] != segments[:-1]) | (stream.event_in_backward[1:] != stream.event_in_backward[:-1])
    starts = np.concatenate([[0], np.flatnonzero(turns) + 1])
    highest, of, backward = np.maximum.reduceat(live, starts), segments[starts], stream.event_in_backward[starts]
    step, load = among(of, stream.step_segments), of == 0
    evaluates = (of == stream.evaluation_segment) & ~load
    others = {phase: among(of, _segments(stream, phase)) for _, phase in stream.between}
    aside = among(of, [segment for segment, _ in stream.between])
    runs = {
        Phase.LOAD: load,
        Phase.FORWARD: ~step & ~load & ~evaluates & ~aside & ~backward,
        Phase.BACKWARD: backward,
        Phase.STEP: step,
        **({Phase.EVALUATION: evaluates} if stream.evaluation_segment else {}),
        **others,
    }
    passes = stream.pass_segments
    begin, end = np.searchsorted(segments, passes), np.searchsorted(segments, passes, side="right")
    forward_ends = [
        last - int(stream.event_in_backward[first:last].sum()) for first, last in zip(begin, end, strict=True)
    ]
    entries = {
        Phase.LOAD: np.zeros(1, dtype=np.int64),
        Phase.FORWARD: begin,
        Phase.BACKWARD: np.asarray(forward_ends, dtype=np.int64),
        Phase.STEP: np.searchsorted(segments, stream.step_segments),
        Phase.EVALUATION: np.searchsorted(segments, [stream.evaluation_segment]),
        **{phase: np.searchsorted(segments, _segments(stream, phase)) for phase in others},
    }
    before = np.concatenate([[0], live])
    return {
        phase: max(int(before[entries[phase]].max(initial=0)), int(highest[mask].max(initial=0)))
        for phase, mask in runs.items()
    }


def _segments(stream: RankStream, phase: Phase) -> list[int]:
    """Where the job does something else than train."""
    return [segment for segment, own in stream.between if own == phase]


def _generation_peaks(stream: RankStream, live: IntArray) -> dict[Phase, int]:
    """The same for a generation, whose segments each lie in one phase."""
    before = np.concatenate([[0], live])
    peaks: dict[Phase, int] = {}
    for segment, phase in enumerate(stream.phases):
        at = np.searchsorted(stream.event_segment, segment), np.searchsorted(stream.event_segment, segment, "right")
        most = max(int(before[at[0]]), int(live[at[0] : at[1]].max(initial=0)))
        peaks[phase] = max(peaks.get(phase, 0), most)
    return peaks


def standing(
    stream: RankStream, micro_batch: int, limit: int | None = None, blocks: IntArray | None = None
) -> list[StandingTensor]:
    """The largest storages at the peak, largest first; `blocks` as in `measure`."""
    sizes = stream.sizes(micro_batch) if blocks is None else blocks
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    counts = alive_at(stream, int(np.argmax(live)))
    order = np.argsort(-(sizes * counts), kind="stable")[:limit]
    return [describe(stream, int(tensor), int(sizes[tensor]), micro_batch) for tensor in order if counts[tensor] > 0]


def describe(stream: RankStream, tensor: int, nbytes: int, micro_batch: int) -> StandingTensor:
    """What a storage is and where it comes from; `nbytes` is what is charged for it."""
    trace = stream.trace
    traced = trace.num_tensors * stream.num_passes
    category = CATEGORIES[int(stream.category[tensor])]
    if tensor >= traced:
        own = tensor - traced
        return StandingTensor(
            nbytes=nbytes,
            category=category,
            module=stream.label_modules[own],
            operator=stream.labels[own],
            shape="",
            basis="source",
        )
    index = tensor % trace.num_tensors
    return StandingTensor(
        nbytes=nbytes,
        category=category,
        module=trace.modules[int(trace.tensor_module[index])],
        operator=trace.operator_names[int(trace.tensor_operator[index])],
        shape=shape_at(trace.tensor_shape[index], micro_batch),
        basis="traced",
        origin=trace.tensor_origin[index] if trace.tensor_origin else "",
    )
