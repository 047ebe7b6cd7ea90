"""Passes of Megatron-core's schedules that run forward only, as verl takes log-probabilities by.

megatron/core/pipeline_parallel/schedules.py: forward_backward_no_pipelining and
forward_backward_pipelining_without_interleaving with `forward_only`: no list names inputs or outputs. What is received
stands until the next is given to the stage (transformer_block.py: set_input_tensor), what is put out until the next
forward has put out its own; what the last stage's loss function gives for each micro batch until the schedule returns
(forward_data_store).
"""

from gpu_plan.planner.megatron.part import GATHERED
from gpu_plan.planner.memory.stream.moments import Pass, Point, point
from gpu_plan.planner.pipeline.places import RECEIVED, SENT_BACK
from gpu_plan.planner.pipeline.schedules import Action, Kind
from gpu_plan.planner.strategy.megatron.builder import MegatronBuilder
from gpu_plan.planner.strategy.pipeline.builder import _Played
from gpu_plan.planner.trace.events import Category


def forwards(order: tuple[Action, ...]) -> tuple[Action, ...]:
    """What is left of a schedule's actions."""
    return tuple(action for action in order if action.kind is Kind.FORWARD)


class ForwardBuilder(MegatronBuilder):
    """Lays out two rounds of one rank with one stage; its order has forwards alone."""

    def _segment(self, in_pass: Pass, event: int) -> int:
        return self._at[in_pass.iteration, self.rank.spans[0].stage, in_pass.micro_step, Kind.FORWARD]

    def _hand_over_inputs(self) -> None:
        """Each micro batch goes with its forward."""
        for one in self._played:
            for name, per, fixed in self._inputs_of(one.action.stage):
                if name not in (RECEIVED, SENT_BACK, GATHERED):
                    made = self._alloc(point(one.segment, -1), fixed, per, Category.INPUTS, name, "")
                    self.free(self._ended(one), made)

    def _place_received(self) -> None:
        for number, one in enumerate(self._played):
            following = self._played[number + 1] if number + 1 < len(self._played) else None
            for name, per, fixed in self._inputs_of(one.action.stage):
                if name != RECEIVED:
                    continue
                made = self._alloc(
                    point(one.segment, -1), fixed, per, Category.COMMUNICATION, "received activations", ""
                )
                if following is not None:
                    self.free(point(following.segment, 0), made)
        kept = [(per, fixed) for own, per, fixed in self.trace.inputs if own == GATHERED]
        if kept:
            per, fixed = max(kept)
            self._alloc(point(self._played[0].segment, -2), fixed, per, Category.COMMUNICATION, "buffer that stays", "")

    def _let_go(self) -> None:
        per_round = len(self.rank.order)
        for number, one in enumerate(self._played):
            last = number % per_round == per_round - 1
            over = self._step_over(self._played[number - number % per_round + per_round - 1])
            left, span = self._left[one.action.stage], self.rank.span_of(one.action.stage)
            gone = over if last or span.cut.is_last else self._ended(self._played[number + 1])
            for tensor in (*left.outputs, *left.losses):
                self.free_traced(gone, one.in_pass, tensor)

    def _ended(self, one: _Played) -> Point:
        return point(one.segment, 2 * self.rank.span_of(one.action.stage).forward[1] + 1)
