"""What one rank allocates and frees, event by event."""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.lead.history import History
from gpu_plan.planner.memory.lines import BLOCK, Peaks
from gpu_plan.planner.memory.schedule import Schedule
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, StepTrace


@dataclass(slots=True, kw_only=True)
class RankStream:
    """Events in time order; tensor columns hold the traced storages of every pass, then the strategy's own."""

    trace: StepTrace
    num_passes: int
    event_sign: IntArray
    event_tensor: IntArray
    event_segment: IntArray
    event_in_backward: NDArray[np.bool_]
    step_segments: tuple[int, ...]
    fixed: IntArray
    per_sample: IntArray
    cuda_stream: IntArray
    """Stream whose pool each storage comes from: 0 the default one, others where a strategy says so."""
    category: IntArray
    labels: list[str]
    label_modules: list[str]
    event_return: IntArray | None = None
    """Where blocks wait for the device, for each schedule in which the host runs ahead [schedules, events]: the event
    from which on a freed block can be handed out again. None where none waits."""
    history: History | None = field(default=None, compare=False, repr=False)
    """What was queued on the device's streams, where blocks wait for them."""
    evaluation_segment: int = 0
    """Segment in which batches are evaluated, after all training; 0 where none are."""
    between: tuple[tuple[int, Phase], ...] = ()
    """Segments behind all training in which the job does something else, and what."""
    names: tuple[tuple[int, str], ...] = ()
    """What those segments are called, where somebody named them."""
    phases: tuple[Phase, ...] = ()
    """Of a generation: the phase of each segment. Empty for training, whose events tell it."""
    _peaks: Peaks = field(init=False, default_factory=Peaks, compare=False, repr=False)

    @property
    def pass_segments(self) -> list[int]:
        """Segments of training between load and last step that are no steps: forward and backward of a micro batch."""
        steps = set(self.step_segments)
        return [segment for segment in range(1, self.step_segments[-1]) if segment not in steps]

    def sizes(self, micro_batch: int) -> IntArray:
        """Allocator bytes charged for every storage."""
        return (self.requested(micro_batch) + (BLOCK - 1)) & -BLOCK

    def requested(self, micro_batch: int) -> IntArray:
        """Bytes asked for, before the allocator rounds them up."""
        return self.fixed + self.per_sample * micro_batch

    def returns(self, schedule: Schedule) -> IntArray | None:
        """Event from which on what each event frees can be handed out again; None where that is at once."""
        if schedule is Schedule.WAITS or self.event_return is None:
            return None
        returns: IntArray = self.event_return[schedule]
        return returns

    def live(self, micro_batch: int) -> IntArray:
        """Allocated bytes after every event."""
        return np.cumsum(self.event_sign * self.sizes(micro_batch)[self.event_tensor])

    def peak(self, micro_batch: int) -> int:
        """Most bytes allocated after any event; 0 without events."""
        return self._peaks.of(micro_batch, self.event_sign, self.event_tensor, self.fixed, self.per_sample)
