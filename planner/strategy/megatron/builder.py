"""A Megatron-core step laid out: what its schedules hold beside what autograd keeps.

megatron/core/pipeline_parallel/schedules.py and p2p_communication.py: a tensor is made for each micro batch when it is
received and lives until its backward; what was sent on is emptied at once (deallocate_output_tensor: every job of
Megatron-LM sets deallocate_pipeline_outputs); what is sent back lives until the next backward returns.
"""

from gpu_plan.planner.megatron.part import GATHERED
from gpu_plan.planner.memory.stream import Point, point
from gpu_plan.planner.pipeline.places import RECEIVED, SENT_BACK
from gpu_plan.planner.pipeline.schedules import Kind
from gpu_plan.planner.strategy.pipeline.builder import PipelineBuilder, _Played
from gpu_plan.planner.trace.events import Category

_LABELS = {RECEIVED: "received activations", SENT_BACK: "received gradients"}


class MegatronBuilder(PipelineBuilder):
    """Lays out two steps of one rank."""

    def _hand_over_inputs(self) -> None:
        """Each micro batch is read when its forward begins, and kept by its graph until its backward."""
        for one in self._played:
            if one.action.kind is not Kind.FORWARD:
                continue
            span = self.rank.span_of(one.action.stage)
            start, over = point(one.segment, -1), self._backward_end(one)
            for name, per, fixed in self._inputs_of(one.action.stage):
                if name in _LABELS or name == GATHERED:
                    continue
                ends = over if name in ("input_ids", "position_ids") else point(one.segment, 2 * span.forward[1] + 1)
                if name in ("labels", "loss_mask"):
                    ends = over
                self.free(ends, self._alloc(start, fixed, per, Category.INPUTS, name, ""))

    def _place_received(self) -> None:
        for one in self._played:
            forward = one.action.kind is Kind.FORWARD
            name = RECEIVED if forward else SENT_BACK
            start = point(one.segment, -1)
            for own, per, fixed in self._inputs_of(one.action.stage):
                if own != name:
                    continue
                handle = self._alloc(start, fixed, per, Category.COMMUNICATION, _LABELS[name], "")
                ends = self._backward_end(one) if forward else self._after(one)
                self.free(ends, handle)
        first = self._played[0].segment
        for own, per, fixed in self.trace.inputs:
            if own == GATHERED:
                self._alloc(point(first, -2), fixed, per, Category.COMMUNICATION, "gathered input of the head", "")

    def _after(self, one: _Played) -> Point:
        """When the loop's variable takes the next gradient that is received: before the next backward, else at its
        end."""
        later = [p for p in self._played if p.segment > one.segment and p.action.kind is not Kind.FORWARD]
        if later and later[0].in_pass.iteration == one.in_pass.iteration:
            return point(later[0].segment, 0)
        return point(one.segment, 2 * self.trace.num_events + 3)

    def _backward_end(self, one: _Played) -> Point:
        span = self.rank.span_of(one.action.stage)
        segment = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, False]
        return point(segment, 2 * span.backward[1] + 1)

    def _let_go(self) -> None:
        per_step = len(self.rank.order)
        for iteration in range(2):
            played = self._played[iteration * per_step : (iteration + 1) * per_step]
            over = point(played[-1].segment, 2 * self.trace.num_events + 4)
            for number, one in enumerate(played):
                self._release(one, number, played, over)

    def _release(self, one: _Played, number: int, played: list[_Played], over: Point) -> None:
        if one.action.kind is Kind.FORWARD:
            return
        left = self._left[one.action.stage]
        span = self.rank.span_of(one.action.stage)
        forward = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, True]
        later = [p for p in played[number + 1 :] if p.action.kind is not Kind.FORWARD]
        back_gone = over
        if later:
            back_gone = point(later[0].segment, 2 * self.rank.span_of(later[0].action.stage).backward[1] + 2)
        for tensors, at in (
            (left.losses, over),
            (left.outputs, point(forward, 2 * span.forward[1] + 1)),
            (left.sent_back, back_gone),
        ):
            for tensor in tensors:
                self.free_traced(at, one.in_pass, tensor)

    def _inputs_of(self, stage: int) -> list[tuple[str, int, int]]:
        """Of a rank with several stages each has its own; only the first one of all reads tokens, only the last one
        labels."""
        cut = self.rank.span_of(stage).cut
        found: dict[str, tuple[str, int, int]] = {name: (name, per, fixed) for name, per, fixed in self.trace.inputs}
        hidden = RECEIVED in found or SENT_BACK in found
        shape = found.get(RECEIVED, found.get(SENT_BACK))
        names = ["input_ids", "position_ids"] if cut.is_first else [RECEIVED]
        names += ["labels", "loss_mask"] if cut.is_last else [SENT_BACK]
        names += ["attention_mask"] if cut.is_first or cut.is_last else []
        listed = []
        for name in names:
            if name in found:
                listed.append(found[name])
            elif hidden and shape is not None and name in _LABELS:
                listed.append((name, shape[1], shape[2]))
        return listed
