"""Builds the stream of one rank: passes and optimizer steps, and what the strategy places at points of them."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from gpu_plan.planner.memory.schedule import DeviceStreams, Freed, Moment
from gpu_plan.planner.memory.stream.assembling import assembled
from gpu_plan.planner.memory.stream.moments import SEGMENT, Pass, Point, point
from gpu_plan.planner.memory.stream.placing import Handle, Placer, Waiting
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.stream.traced import (
    TracedEvents,
    allocations,
    carried_storages,
    gradient_positions,
    gradient_tensors,
    marks,
)
from gpu_plan.planner.trace.events import Category, IntArray, Mark, StepTrace


class StreamBuilder(Placer):
    """Lays out a run of two iterations: load, then for each iteration its micro steps and the optimizer step.

    Of an accumulation's micro steps the first and one later one are laid out: the rest repeat the later one.
    """

    _like_others: ClassVar[bool] = True
    """Whether every rank of a trace with as many passes has the same traced events."""

    def __init__(self, trace: StepTrace, accumulation_steps: int) -> None:
        super().__init__()
        self.trace = trace
        self.passes: list[Pass] = []
        self._lay_out(accumulation_steps)
        self._numbers = {in_pass.segment: number for number, in_pass in enumerate(self.passes)}
        self._marks = marks(trace)
        self._gradient_at = gradient_positions(trace)
        self._gradient_tensor = gradient_tensors(trace)
        self._num_tensors = trace.num_tensors
        self._hand_over_inputs()

    def _lay_out(self, accumulation_steps: int) -> None:
        """Passes and optimizer steps, each a segment of the run."""
        segment = 1
        micro_steps = min(accumulation_steps, 2)
        for iteration in range(2):
            for micro_step in range(micro_steps):
                self.passes.append(
                    Pass(
                        segment=segment,
                        iteration=iteration,
                        micro_step=micro_step,
                        last=micro_step == micro_steps - 1,
                    )
                )
                segment += 1
            self.steps.append(segment)
            segment += 1

    # -- points ------------------------------------------------------------------------------------------

    def before(self, in_pass: Pass, event: int) -> Point:
        """Just before a traced event."""
        return Point(in_pass.segment * SEGMENT + 2 * event)

    def after(self, in_pass: Pass, event: int) -> Point:
        """Just after a traced event."""
        return Point(in_pass.segment * SEGMENT + 2 * event + 2)

    def after_each(self, in_pass: Pass, events: IntArray) -> list[Point]:
        """Just after each of some traced events [events]."""
        points: list[Point] = (in_pass.segment * SEGMENT + 2 * events + 2).tolist()
        return points

    def at_mark(self, in_pass: Pass, mark: Mark) -> Point:
        """At a point of the loop."""
        return self.before(in_pass, self._marks[mark])

    def at_end(self, in_pass: Pass) -> Point:
        """When the micro step is over."""
        return self.after(in_pass, self.trace.num_events)

    def gradient_event(self, parameter: int) -> int | None:
        """Event at which a parameter's gradient is complete, or None when it gets none."""
        return self._gradient_at.get(parameter)

    # -- allocations --------------------------------------------------------------------------------------

    def _alloc(
        self, at: Point, fixed: int, per_sample: int, category: Category, label: str, module: str, cuda_stream: int = 0
    ) -> Handle:
        made = self.alloc(at, fixed, category, label, module, cuda_stream=cuda_stream)
        if per_sample:
            self._placed.per_sample[made] = per_sample
        return made

    @property
    def num_placed(self) -> int:
        """Events of the strategy that were placed so far."""
        return len(self._placed.at)

    def moment(self, at: Point) -> Moment:
        """A point, behind what was placed there so far."""
        return at, len(self._placed.at)

    def wait_each(self, waiting: Waiting) -> None:
        """What `waits` says in `free`, of all frees at once."""
        self._placed.waiting = waiting

    def free_gradient(self, at: Point, in_pass: Pass, parameter: int, waits: Freed | None = None) -> None:
        """The traced storage of a parameter's gradient goes away; `waits` as in `free`."""
        tensor = self._gradient_tensor.get(parameter)
        if tensor is not None:
            if waits is not None:
                self._placed.waits[len(self._placed.at)] = waits
            self.free_traced(at, in_pass, tensor)

    def free_gradients(self, at: Point, in_pass: Pass, parameters: Iterable[int]) -> None:
        """Those of several parameters, at once."""
        placed, first = self._placed, self._number(in_pass) * self._num_tensors + 1
        known = [tensor for one in parameters if (tensor := self._gradient_tensor.get(one)) is not None]
        placed.at.extend([at] * len(known))
        placed.what.extend([-2 * (first + tensor) for tensor in known])

    def gradients_gone(self, in_pass: Pass, parameters: IntArray) -> IntArray:
        """For `place_each`: frees of the traced gradients of parameters [parameters]; 0 for one that has none."""
        first = self._number(in_pass) * self._num_tensors + 1
        tensors = map(self._gradient_tensor.get, parameters.tolist())
        return np.asarray([0 if tensor is None else -2 * (first + tensor) for tensor in tensors], dtype=np.int64)

    def free_traced(self, at: Point, in_pass: Pass, tensor: int) -> None:
        """A traced storage of a pass goes away, which the trace itself leaves alive."""
        placed = self._placed
        placed.at.append(at)
        placed.what.append(-2 * (self._number(in_pass) * self._num_tensors + tensor + 1))

    def _number(self, in_pass: Pass) -> int:
        return self._numbers[in_pass.segment]

    def _hand_over_inputs(self) -> None:
        """Each batch lives until the loop's variable takes the next one."""
        before: list[Handle] = []
        for in_pass in self.passes:
            start = point(in_pass.segment, -1)
            batch = [
                self._alloc(start, fixed, per_sample, Category.INPUTS, name, "")
                for name, per_sample, fixed in self.trace.inputs
            ]
            for handle in before:
                self.free(start, handle)
            before = batch

    # -- result --------------------------------------------------------------------------------------------

    def build(self, streams: DeviceStreams | None = None) -> RankStream:
        """The finished stream; `streams`: what was queued beside it on the device's streams."""
        segments = self._pass_segments()
        placed = self._placed
        return assembled(
            self.trace,
            self._traced_events,
            segments,
            len(self.passes),
            self.steps,
            placed,
            streams,
            like_others=self._like_others,
        )

    def _pass_segments(self) -> list[int]:
        """Segments in which passes run."""
        return [in_pass.segment for in_pass in self.passes]

    def _traced_events(self) -> TracedEvents:
        """What the traced step itself allocates and frees, pass by pass."""
        base_at, base_sign, base_subject = allocations(self.trace)
        carried = carried_storages(self.trace)
        bound_key = 2 * self._marks[Mark.OUTPUTS_BOUND]
        events = TracedEvents()
        for index, in_pass in enumerate(self.passes):
            offset = index * self.trace.num_tensors
            events.add(in_pass.segment, 2 * base_at + 1, base_sign, base_subject + offset)
            if index > 0:
                # What the loop still held from the pass before goes when its variables are bound anew.
                gone = carried + offset - self.trace.num_tensors
                events.add(in_pass.segment, np.full(len(gone), bound_key), np.full(len(gone), -1), gone)
        return events
