"""A pipeline's run laid out: load, then for each iteration every action of the schedule and the optimizer step.

What stands between a micro batch's forward and its backward is what autograd kept, as the trace has it. Beside it, as
torch/distributed/pipelining (torch 2.13) holds it: a buffer for every micro batch that is received, activations and
gradients alike, from the first step on (stage.py: _setup_forward_recv_info, _create_grad_recv_info); a stage's output
until its backward has ended (fwd_cache) and the next forward has put out its own, and what is sent back until the next
one is (schedules.py: Schedule1F1B._step_microbatches); losses until the step is over.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point, point
from gpu_plan.planner.memory.stream.traced import TracedEvents, allocations, carried_storages
from gpu_plan.planner.pipeline.places import RECEIVED, SENT_BACK, PipelineRank, StageSpan
from gpu_plan.planner.pipeline.schedules import Action, Kind, Schedule
from gpu_plan.planner.trace.events import Category, Mark, StepTrace

if TYPE_CHECKING:
    from gpu_plan.planner.memory.stream.placing import Handle

_SCALAR = 16
"""Bytes of a loss at most: of what a stage puts out, the rest grows with the batch."""
_RECEIVED = {RECEIVED: "received activations", SENT_BACK: "received gradients"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """One action in one iteration."""

    action: Action
    segment: int
    in_pass: Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """Storages that a stage's pass leaves alive, by what they are."""

    outputs: tuple[int, ...]
    losses: tuple[int, ...]
    sent_back: tuple[int, ...]
    """Gradients of what the stage received."""


def _last_of(span: StageSpan) -> Kind:
    """What ends a micro batch's backward through a stage."""
    return Kind.BACKWARD if span.weights is None else Kind.WEIGHT


def _events_of(span: StageSpan, kind: Kind) -> tuple[int, int]:
    """Events of the trace that an action goes through."""
    if kind is Kind.FORWARD:
        return span.forward
    start, end = span.backward
    if span.weights is None:
        return start, end
    return (start, span.weights) if kind is Kind.INPUT else (span.weights, end)


class PipelineBuilder(StreamBuilder):
    """Lays out two steps of one rank; a `Pass` is a micro batch, its forward and backward segments of their own."""

    _like_others = False

    def __init__(self, trace: StepTrace, rank: PipelineRank) -> None:
        self.rank = rank
        self._played: list[_Played] = []
        self._at: dict[tuple[int, int, int, Kind], int] = {}
        super().__init__(trace, rank.micro_batches)
        self._place_received()
        self._let_go()

    @property
    def last_passes(self) -> list[Pass]:
        """The last micro batch of each iteration."""
        return [in_pass for in_pass in self.passes if in_pass.last]

    def after_backward(self, in_pass: Pass, span: StageSpan) -> Point:
        """When a micro batch's backward through one stage is over."""
        return self.after(in_pass, span.backward[1] - 1)

    # -- the run --------------------------------------------------------------------------------------------

    def _lay_out(self, accumulation_steps: int) -> None:
        segment, order = 1, self.rank.order
        for iteration in range(2):
            first = segment
            for number, action in enumerate(order):
                self._at[iteration, action.stage, action.micro_batch, action.kind] = first + number
            own = [
                Pass(
                    segment=self._at[iteration, self.rank.spans[0].stage, index, Kind.FORWARD],
                    iteration=iteration,
                    micro_step=index,
                    last=index == accumulation_steps - 1,
                )
                for index in range(accumulation_steps)
            ]
            self.passes += own
            self._played += [
                _Played(action=action, segment=first + number, in_pass=own[action.micro_batch])
                for number, action in enumerate(order)
            ]
            segment = first + len(order)
            self.steps.append(segment)
            segment += 1

    def before(self, in_pass: Pass, event: int) -> Point:
        return point(self._segment(in_pass, event), 2 * event)

    def after(self, in_pass: Pass, event: int) -> Point:
        return point(self._segment(in_pass, event), 2 * event + 2)

    def _segment(self, in_pass: Pass, event: int) -> int:
        """Segment in which a pass comes to a traced event."""
        here, kind = self.rank.spans[0], _last_of(self.rank.spans[0])  # behind all: the first stage's backward is last
        for span in self.rank.spans:
            if span.forward[0] <= event < span.forward[1]:
                here, kind = span, Kind.FORWARD
            elif span.backward[0] <= event < span.backward[1]:
                here, kind = span, _last_of(span)
                if span.weights is not None and event < span.weights:
                    kind = Kind.INPUT
        return self._at[in_pass.iteration, here.stage, in_pass.micro_step, kind]

    def _number(self, in_pass: Pass) -> int:
        return in_pass.iteration * self.rank.micro_batches + in_pass.micro_step

    def _pass_segments(self) -> list[int]:
        return [played.segment for played in self._played]

    def _traced_events(self) -> TracedEvents:
        at, sign, subject = allocations(self.trace)
        events = TracedEvents()
        for played in self._played:
            start, end = _events_of(self.rank.span_of(played.action.stage), played.action.kind)
            here = slice(*np.searchsorted(at, [start, end]))
            offset = self._number(played.in_pass) * self.trace.num_tensors
            events.add(played.segment, 2 * at[here] + 1, sign[here], subject[here] + offset)
        return events

    # -- what the schedule holds -------------------------------------------------------------------------------

    def _hand_over_inputs(self) -> None:
        """The batch of a whole step lives until the loop's variable takes the next one; micro batches are views."""
        before: list[Handle] = []
        for iteration in range(2):
            start = point(self._played[iteration * len(self.rank.order)].segment, -1)
            batch = [
                self._alloc(
                    start, fixed * self.rank.micro_batches, per * self.rank.micro_batches, Category.INPUTS, name, ""
                )
                for name, per, fixed in self.trace.inputs
                if name not in _RECEIVED
            ]
            self.free_each(start, before)
            before = batch

    def _place_received(self) -> None:
        """Buffers of every micro batch, made before the first one runs, activations' before gradients'."""
        start = point(self._played[0].segment, -2)
        for name, label in _RECEIVED.items():
            for own, per, fixed in self.trace.inputs:
                if own == name:
                    for _ in range(self.rank.micro_batches):
                        self._alloc(start, fixed, per, Category.COMMUNICATION, label, "")

    def _let_go(self) -> None:
        """Frees what each micro batch leaves behind: outputs, losses and what is sent back."""
        per_step = len(self.rank.order)
        for iteration in range(2):
            played = self._played[iteration * per_step : (iteration + 1) * per_step]
            over = point(played[-1].segment, 2 * self.trace.num_events + 4)
            for number, one in enumerate(played):
                self._let_go_of(one, number, played, over)

    def _let_go_of(self, one: _Played, number: int, played: list[_Played], over: Point) -> None:
        """Of one backward: its forward's output and loss, and what it sends back."""
        if one.action.kind in (Kind.FORWARD, Kind.INPUT):
            return
        left = self._left[one.action.stage]
        if one.action.kind is Kind.WEIGHT:
            self._let_go_of_halves(one, left, over)
            return
        for tensors, at in (
            (left.losses, over),
            (left.outputs, self._outputs_gone(one, played, over)),
            (left.sent_back, self._sent_back_gone(one, number, played, over)),
        ):
            for tensor in tensors:
                self.free_traced(at, one.in_pass, tensor)

    def _let_go_of_halves(self, one: _Played, left: _Left, over: Point) -> None:
        """Of a backward that is split: its output goes with the second half (stage.py: backward_state), unless gloo
        still holds it, the last stage's, which its loss stands for, with the first; what it sends back stays as the
        received tensor's gradient until the next step begins (clear_runtime_states)."""
        span, per_step = self.rank.span_of(one.action.stage), len(self.rank.order)
        assert span.weights is not None
        gone = over if self.rank.keeps_sent else point(one.segment, 2 * span.backward[1] + 1)
        if span.cut.is_last:
            first = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.INPUT]
            gone = point(first, 2 * span.weights + 1)
        for tensors, at in ((left.losses, over), (left.outputs, gone)):
            for tensor in tensors:
                self.free_traced(at, one.in_pass, tensor)
        if one.in_pass.iteration == 0:
            following = point(self._played[per_step].segment, -2)
            for tensor in left.sent_back:
                self.free_traced(following, one.in_pass, tensor)

    def _outputs_gone(self, one: _Played, played: list[_Played], over: Point) -> Point:
        """When the output of a micro batch that has gone back is let go of."""
        span, schedule = self.rank.span_of(one.action.stage), self.rank.schedule
        if self.rank.keeps_sent and not span.cut.is_last and schedule is not Schedule.ONE_F_ONE_B:
            return over
        if not schedule.takes_stages:
            forwards = self._forwards[one.in_pass.iteration]
            mine = one.in_pass.micro_step  # one stage takes them in their order
            if mine + 1 == len(forwards):
                return over
            following = forwards[mine + 1]
            if following.segment > one.segment:
                return self._at_forward_end(following)
            if self.rank.keeps_sent and not span.cut.is_last and mine == self._ahead(played) - 2:
                # Schedule1F1B's send_work, from the last send of the warmup to the first of the cooldown.
                behind = next(p for p in played if p.segment > forwards[-1].segment)
                return point(max(behind.segment, one.segment), 2 * span.backward[1] + 2)
        return point(one.segment, 2 * span.backward[1] + 1)

    @cached_property
    def _forwards(self) -> tuple[list[_Played], ...]:
        """Forwards of each iteration, in their order."""
        return tuple(
            [p for p in self._played if p.in_pass.iteration == number and p.action.kind is Kind.FORWARD]
            for number in range(2)
        )

    @staticmethod
    def _ahead(played: list[_Played]) -> int:
        """Forwards before the first backward."""
        return next(number for number, one in enumerate(played) if one.action.kind is not Kind.FORWARD)

    def _sent_back_gone(self, one: _Played, number: int, played: list[_Played], over: Point) -> Point:
        """When the gradient that one micro batch sends back is let go of: the next one takes its variable."""
        schedule = self.rank.schedule
        if self.rank.keeps_sent and schedule is not Schedule.ONE_F_ONE_B:
            return over
        span = self.rank.span_of(one.action.stage)
        if schedule.takes_stages:
            following = played[number + 1] if number + 1 < len(played) else None
            return over if following is None else point(following.segment, -1)
        later = next((p for p in islice(played, number + 1, None) if p.action.kind is not Kind.FORWARD), None)
        return over if later is None else point(later.segment, 2 * span.backward[1] + 2)

    def _at_forward_end(self, played: _Played) -> Point:
        """When a forward's outputs are bound to the loop's variable."""
        span = self.rank.span_of(played.action.stage)
        bound = 2 * self.trace.mark_position(Mark.OUTPUTS_BOUND)
        return point(played.segment, min(bound, 2 * span.forward[1]))

    @cached_property
    def _left(self) -> dict[int, _Left]:
        """What a pass of each stage leaves alive."""
        at, sign, subject = allocations(self.trace)
        made = {int(tensor): int(place) for place, how, tensor in zip(at, sign, subject, strict=True) if how > 0}
        turn = self.trace.mark_position(Mark.BACKWARD)
        carried = [int(tensor) for tensor in carried_storages(self.trace)]
        found = {}
        for span in self.rank.spans:
            own = [tensor for tensor in carried if span.tensors[0] <= tensor < span.tensors[1]]
            back = tuple(tensor for tensor in own if made[tensor] >= turn)
            losses = tuple(tensor for tensor in own if made[tensor] < turn and self._is_scalar(tensor))
            outputs = tuple(tensor for tensor in own if tensor not in (*back, *losses))
            found[span.stage] = _Left(outputs=outputs, losses=losses, sent_back=back)
        return found

    def _is_scalar(self, tensor: int) -> bool:
        return bool(self.trace.bytes_per_sample[tensor] == 0 and self.trace.bytes_fixed[tensor] <= _SCALAR)
