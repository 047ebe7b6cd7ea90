"""A Megatron-core step laid out: what its schedules hold beside what autograd keeps.

megatron/core/pipeline_parallel/schedules.py and p2p_communication.py: a tensor is made for each micro batch when it is
received and lives until its backward; what was sent on is emptied at once (deallocate_output_tensor: every job of
Megatron-LM sets deallocate_pipeline_outputs), or lives as long as its graph; what is sent back lives until the next
backward returns.
"""

from functools import cached_property
from itertools import islice

from gpu_plan.planner.megatron.part import GATHERED
from gpu_plan.planner.memory.stream.moments import Point, point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.pipeline.places import RECEIVED, SENT_BACK, PipelineRank
from gpu_plan.planner.pipeline.schedules import Kind
from gpu_plan.planner.strategy.pipeline.builder import PipelineBuilder, _Played
from gpu_plan.planner.trace.events import Category, StepTrace

_LABELS = {RECEIVED: "received activations", SENT_BACK: "received gradients"}


def _is_forward(one: _Played) -> bool:
    return one.action.kind is Kind.FORWARD


class MegatronBuilder(PipelineBuilder):
    """Lays out two steps of one rank."""

    def __init__(
        self, trace: StepTrace, rank: PipelineRank, *, masked_ids: bool = False, deallocates: bool = True
    ) -> None:
        """`deallocates`: whether what was sent on is emptied at once. `masked_ids`: whether ranks that share the
        embedding look up a masked copy of the ids, which their graph keeps in place of the ids
        (tensor_parallel/layers.py: VocabParallelEmbedding.forward)."""
        self._kept_inputs = {"position_ids"} if masked_ids else {"input_ids", "position_ids"}
        self._deallocates = deallocates
        super().__init__(trace, rank)

    def _hand_over_inputs(self) -> None:
        """Each micro batch is read when its forward begins, and goes when that is over but for what its graph keeps."""
        for one in self._played:
            if one.action.kind is not Kind.FORWARD:
                continue
            span = self.rank.span_of(one.action.stage)
            start, over = point(one.segment, -1), self._backward_end(one)
            for name, per, fixed in self._inputs_of(one.action.stage):
                if name in _LABELS or name == GATHERED:
                    continue
                ends = over if name in self._kept_inputs else point(one.segment, 2 * span.forward[1] + 1)
                if name == "loss_mask":
                    ends = point(
                        self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.BACKWARD], 0
                    )
                self.free(ends, self._alloc(start, fixed, per, Category.INPUTS, name, ""))

    def _place_received(self) -> None:
        for place, one in enumerate(self._played):
            forward = _is_forward(one)
            name = RECEIVED if forward else SENT_BACK
            start = self._asked_for(place)
            for own, per, fixed in self._inputs_of(one.action.stage):
                if own != name:
                    continue
                handle = self._alloc(start, fixed, per, Category.COMMUNICATION, _LABELS[name], "")
                gone = self._input_gone(place) if forward else self._gradient_gone(one)
                self._end(gone, handle)
        first = self._played[0].segment
        # One for all of a rank's stages, as large as the largest use.
        kept = [(per, fixed) for own, per, fixed in self.trace.inputs if own == GATHERED]
        if kept:
            per, fixed = max(kept)
            self._alloc(point(first, -2), fixed, per, Category.COMMUNICATION, "buffer that stays", "")

    @property
    def _interleaved(self) -> bool:
        return len(self.rank.spans) > 1

    @cached_property
    def _first_forwards(self) -> int:
        """Forwards of a step that come before its first backward, without the one beside that."""
        kinds = [_is_forward(one) for one in self._played[: len(self.rank.order)]]
        first = kinds.index(False)
        return first if first == sum(kinds) else first - 1

    def _of_step(self, place: int) -> int:
        """Where the step begins that the action at that place belongs to."""
        return place - place % len(self.rank.order)

    def _following(self, place: int, *, forward: bool) -> _Played | None:
        """The next action of that kind in the step."""
        end = self._of_step(place) + len(self.rank.order)
        return next((p for p in self._played[place + 1 : end] if _is_forward(p) is forward), None)

    def _asked_for(self, place: int) -> Point:
        """When the tensor is made into which the action at that place receives.

        Before the action; with virtual stages, whose sends and receives go beside what is computed, as soon as the last
        action of its kind is over, the first gradient's when all forwards ahead are
        (forward_backward_pipelining_with_interleaving: pp_post_forward, pp_post_backward).
        """
        one, start = self._played[place], self._of_step(place)
        if self._interleaved:
            own = self._played[start:place]
            like = next((p for p in reversed(own) if _is_forward(p) is _is_forward(one)), None)
            if not _is_forward(one) and all(map(_is_forward, own)):
                like = own[self._first_forwards - 1] if self._first_forwards else None
            if like is not None:
                return point(like.segment, self._over(like))
        return point(one.segment, -1)

    def _over(self, one: _Played) -> int:
        """The key behind an action's last event."""
        span = self.rank.span_of(one.action.stage)
        return 2 * (span.forward if _is_forward(one) else span.backward)[1] + 2

    def _gradient_gone(self, one: _Played) -> Point:
        """When what a backward was given goes."""
        return self._backward_end(one) if self._interleaved else self._after(one)

    def _output_gone(self, place: int) -> Point:
        """When the output is emptied of the forward at that place: when it is sent; with virtual stages, past the
        forwards that come first, before the next forward, or where none follows after the backward beside it. What is
        not emptied goes with its graph, which the schedule's lists name."""
        one = self._played[place]
        if not self._deallocates:
            back = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.BACKWARD]
            return self._graph_gone(self._places[back])
        sent = point(one.segment, 2 * self.rank.span_of(one.action.stage).forward[1] + 1)
        if not self._interleaved or place - self._of_step(place) < self._first_forwards:
            return sent
        if (following := self._following(place, forward=True)) is not None:
            return point(following.segment, 0)
        beside = self._following(place, forward=False)
        return sent if beside is None else point(beside.segment, self._over(beside))

    def _after(self, one: _Played) -> Point:
        """When the loop's variable takes the next gradient that is received: before the next backward, else at its
        end."""
        later = [p for p in self._played if p.segment > one.segment and p.action.kind is not Kind.FORWARD]
        if later and later[0].in_pass.iteration == one.in_pass.iteration:
            return point(later[0].segment, 0)
        return point(one.segment, 2 * self.trace.num_events + 3)

    def _end(self, at: Point | None, handle: Handle) -> None:
        """Frees it then; where it outlives what is laid out, never."""
        if at is not None:
            self.free(at, handle)

    def _input_gone(self, place: int) -> Point | None:
        """When what the forward at that place was given goes; None: not within the steps that are laid out.

        The stage names it until it is given the next (transformer_block.py: set_input_tensor); and without virtual
        stages its graph lives on in the schedule's `output_tensor`, which is the next forward's when that is over, or
        taken from a list before the next backward (schedules.py: forward_backward_pipelining_without_interleaving).
        """
        one = self._played[place]
        after = self._played[place + 1 :]
        named = next((p for p in after if _is_forward(p) and p.action.stage == one.action.stage), None)
        if named is None:
            return None
        if self._named_by_loop(place):
            last = self._played[self._of_step(place) + len(self.rank.order) - 1]
            return max(point(named.segment, 0), self._step_over(last))
        back = self._places[self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.BACKWARD]]
        return max(point(named.segment, 0), self._graph_gone(back))

    def _named_by_loop(self, place: int) -> bool:
        """Whether the forward at that place was given what the loop over the forwards that come first received last.

        Its `input_tensor`, which nothing else takes while sends go beside what is computed, names it until the schedule
        returns. The first rank receives none there (schedules.py: forward_backward_pipelining_with_interleaving,
        recv_tensor_from_previous_stage).
        """
        ahead = self._first_forwards
        last_received = ahead > 0 and place - self._of_step(place) == ahead and _is_forward(self._played[place])
        return self._interleaved and self.rank.rank > 0 and last_received

    def _step_over(self, last: _Played) -> Point:
        """When the schedule returns, whose last action that is."""
        return point(last.segment, 2 * self.trace.num_events + 4)

    @cached_property
    def _places(self) -> dict[int, int]:
        """Places of actions by their segments."""
        return {one.segment: place for place, one in enumerate(self._played)}

    def _graph_gone(self, place: int) -> Point:
        """When the graph goes of which the backward pass is the one at that place."""
        one = self._played[place]
        if self._interleaved:
            return self._backward_end(one)
        after = self._played[place + 1] if place + 1 < len(self._played) else None
        if after is None or after.in_pass.iteration != one.in_pass.iteration:
            return self._step_over(one)
        if not _is_forward(after):
            return point(after.segment, 0)
        return point(after.segment, 2 * self.rank.span_of(after.action.stage).forward[1] + 1)

    def _backward_end(self, one: _Played) -> Point:
        span = self.rank.span_of(one.action.stage)
        segment = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.BACKWARD]
        return point(segment, 2 * span.backward[1] + 1)

    def _let_go(self) -> None:
        per_step = len(self.rank.order)
        for iteration in range(2):
            played = self._played[iteration * per_step : (iteration + 1) * per_step]
            over = self._step_over(played[-1])
            for number, one in enumerate(played):
                self._release(one, number, played, over)

    def _release(self, one: _Played, number: int, played: list[_Played], over: Point) -> None:
        if one.action.kind is Kind.FORWARD:
            return
        left = self._left[one.action.stage]
        forward = self._at[one.in_pass.iteration, one.action.stage, one.action.micro_batch, Kind.FORWARD]
        later = next((p for p in islice(played, number + 1, None) if not _is_forward(p)), None)
        back_gone = over
        if later is not None:
            back_gone = point(later.segment, 2 * self.rank.span_of(later.action.stage).backward[1] + 2)
        given = self._places[forward]
        # What is sent back is the gradient that the input itself names.
        named = self._input_gone(given)
        kept = [(left.losses, over), (left.outputs, self._output_gone(given))]
        kept += [] if named is None else [(left.sent_back, max(named, back_gone))]
        for tensors, at in kept:
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
        if cut.is_last and not cut.is_first:
            # Read again by layers that predict further tokens, where the stage has some.
            names += ["input_ids", "position_ids"]
        names += ["labels", "loss_mask"] if cut.is_last else [SENT_BACK]
        names += ["attention_mask"] if cut.is_first or cut.is_last else []
        listed = []
        for name in names:
            if name in found:
                listed.append(found[name])
            elif hidden and shape is not None and name in _LABELS:
                listed.append((name, shape[1], shape[2]))
        return listed
