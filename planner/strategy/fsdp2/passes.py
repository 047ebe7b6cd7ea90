"""FSDP2's forward and backward passes: units gathered ahead, resharded, their gradients reduced.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13): _fsdp_param_group.py (unshard, wait_for_unshard,
post_forward, pre_backward, post_backward), _fsdp_collectives.py (foreach_all_gather and its copy-out,
foreach_reduce), _fsdp_state.py (_root_post_backward_final_callback).
"""

from collections.abc import Sequence

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.strategy.fsdp2 import float8 as fsdp_float8
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.accumulation import AccumulatedGradients
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.units import Unit
from gpu_plan.planner.trace.events import Category, Mark

Unsharded = tuple[Handle, ...]
"""A unit's gathered parameters, one storage each."""

_COMMUNICATION = Category.COMMUNICATION
ALL_GATHER_STREAM, REDUCE_SCATTER_STREAM = 1, 2
"""Side streams of FSDPCommContext: what is allocated on them comes from pools of their own."""


def drop_gradient_shards(builder: StreamBuilder, shards: Sequence[Handle]) -> None:
    """zero_grad drops the shards at the end of each iteration."""
    per_iteration = len(shards) // len(builder.steps)
    for iteration in range(len(builder.steps)):
        start = iteration * per_iteration
        for handle in shards[start : start + per_iteration]:
            builder.free(builder.at_step(iteration), handle)


class Passes:
    """Places what the passes of one rank take."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._builder = layout.builder
        self.gradient_shards: list[Handle] = []
        """Reduced gradients that stand until zero_grad."""
        self._accumulated = AccumulatedGradients(layout.builder, casts=layout.reduce != layout.regime.trained)
        self._each = layout.context.reduces_each
        self._reduced: set[str] = set()
        """Weights whose gradients a backward pass has reduced so far, tied ones by the name of the first."""
        self._in_all_reduce: list[Handle] = []
        """What HSDP's groups hold of a backward pass (_fsdp_param_group.py: AllReduceState)."""

    def forward(self, in_pass: Pass) -> dict[str, Unsharded]:
        """Gathers units as forward enters them; returns those that stay gathered for backward."""
        builder = self._builder
        kept: dict[str, Unsharded] = {}
        before: Handle | None = None
        for unit in self._layout.forward_order:
            enter, leave = self._layout.forward_span(unit)
            at = builder.before(in_pass, enter)
            gathered = self._all_gather(in_pass, enter, unit)
            out = self._copy_out(at, unit) if gathered is not None else self._copied(at, unit)
            if before is not None:
                # A local of wait_for_unshard keeps the last all-gather's output until it returns.
                builder.free(at, before)
            before = gathered
            if unit.reshard_after_forward:
                builder.free_each(builder.after(in_pass, leave), out)
            else:
                kept[unit.name] = out
        if before is not None:
            builder.free(builder.at_mark(in_pass, Mark.OUTPUTS_BOUND), before)
        return kept

    def backward(self, in_pass: Pass, unsharded: dict[str, Unsharded]) -> None:
        """Gathers units before their backward, one ahead; reduces each unit's gradients after it."""
        builder = self._builder
        self.begin_reducing()
        order = self._layout.backward_order()
        prefetched: dict[str, Handle | None] = {}
        reduce_input: Handle | None = None
        events: list[tuple[int, int, Unit]] = []
        for unit, enter, leave in order:
            events.append((enter, 0, unit))
            events.append((leave, 1, unit))
        following = {unit.name: order[i + 1][0] for i, (unit, _, _) in enumerate(order[:-1])}
        events.sort(key=lambda item: (item[0], item[1]))
        for position, what, unit in events:
            if what == 0:
                self._gather_for_backward(in_pass, position, unit, unsharded, prefetched, following)
            else:
                reduce_input = self._post_backward(in_pass, position, unit, unsharded, reduce_input)
        if reduce_input is not None:
            builder.free(builder.at_end(in_pass), reduce_input)
        builder.free_each(builder.at_end(in_pass), self._in_all_reduce)
        self._in_all_reduce.clear()

    def begin_reducing(self) -> None:
        """A backward pass reduces anew, or a step whose stages reduce when all of theirs are over."""
        self._reduced.clear()

    def add_gradients(self, in_pass: Pass) -> None:
        """Later micro steps' gradients are added in place to the first's, which stand whole until they are reduced."""
        if in_pass.micro_step == 0 or self._accumulated.casts or self._each:
            return
        for index, parameter in enumerate(self._layout.trace.parameters):
            event = self._builder.gradient_event(index)
            if event is not None and parameter.trainable:
                self._builder.free_gradient(self._builder.after(in_pass, event), in_pass, index)

    def _copy_out(self, at: Point, unit: Unit) -> Unsharded:
        """The unsharded parameters, one storage each, padding included."""
        unsharded = self._layout.unsharded_bytes
        sizes = [unsharded[i] for i in unit.parameters]
        return self._builder.alloc_each(at, sizes, _COMMUNICATION, "unsharded parameters", unit.name)

    def _copied(self, at: Point, unit: Unit) -> Unsharded:
        """wait_for_unshard of a group of one rank: each parameter is copied, by way of the type that it is used in."""
        builder, layout = self._builder, self._layout
        kept: list[Handle] = []
        before: Handle | None = None
        for index in unit.parameters:
            cast = None
            if layout.stored_dtype(index) != layout.gathered_dtype(index):
                size = layout.unsharded_bytes[index]
                cast = builder.alloc(at, size, _COMMUNICATION, "parameter, cast", unit.name)
            if before is not None:
                builder.free(at, before)  # a local of the loop
            before = cast
            kept += builder.alloc_each(
                at, [layout.unsharded_bytes[index]], _COMMUNICATION, "unsharded parameters", unit.name
            )
        if before is not None:
            builder.free(at, before)
        return tuple(kept)

    def _all_gather(self, in_pass: Pass, event: int, unit: Unit) -> Handle | None:
        """foreach_all_gather: a low-precision copy of the shards that are not so stored, and the flat output; None in a
        group of one rank, which gathers nothing."""
        if self._layout.ranks(unit) == 1 and unit.experts:
            return None
        builder = self._builder
        at = builder.before(in_pass, event)
        copied_in = self._copy_in(at, unit)
        handle = builder.alloc(
            at,
            self._layout.gathered(unit),
            _COMMUNICATION,
            "all-gather output",
            unit.name,
            cuda_stream=ALL_GATHER_STREAM,
        )
        builder.free_each(at, copied_in)
        return handle

    def _copy_in(self, at: Point, unit: Unit) -> Sequence[Handle]:
        """_get_param_all_gather_inputs: nothing where shards are stored on the device as they are gathered."""
        if self._layout.on_host:
            return fsdp_host.copy_in(self._builder, at, self._layout.host_shards(unit), unit.name, ALL_GATHER_STREAM)
        float8 = self._layout.float8_shards(unit)
        made = fsdp_float8.cast_shards(self._builder, at, float8, unit.name, ALL_GATHER_STREAM)
        size = self._layout.cast_in(unit)
        if not size:
            return made
        category, label = _COMMUNICATION, "all-gather input"
        return [*made, self._builder.alloc(at, size, category, label, unit.name, cuda_stream=ALL_GATHER_STREAM)]

    def _gather_for_backward(
        self,
        in_pass: Pass,
        position: int,
        unit: Unit,
        unsharded: dict[str, Unsharded],
        prefetched: dict[str, Handle | None],
        following: dict[str, Unit],
    ) -> None:
        """pre_backward: copy-out frees the all-gather output at once, then the next unit is prefetched.

        A unit without backward (a frozen embedding) is prefetched for nothing (_fsdp_state.py:
        _root_post_backward_final_callback waits for it and clears it).
        """
        builder = self._builder
        at = builder.before(in_pass, position)
        if not self._layout.runs_backward(unit):
            gathered = prefetched.pop(unit.name, None)
            if gathered is not None:
                builder.free(at, gathered)
            return
        if unit.name not in unsharded:
            gathered = prefetched.pop(unit.name, None) or self._all_gather(in_pass, position, unit)
            unsharded[unit.name] = self._copy_out(at, unit) if gathered is not None else self._copied(at, unit)
            if gathered is not None:
                builder.free(at, gathered)
        ahead = following.get(unit.name)
        if ahead is not None and ahead.name not in unsharded and ahead.name not in prefetched:
            prefetched[ahead.name] = self._all_gather(in_pass, position, ahead)

    def _post_backward(
        self, in_pass: Pass, position: int, unit: Unit, unsharded: dict[str, Unsharded], reduce_input: Handle | None
    ) -> Handle | None:
        """Reshards, then reduce-scatters: the input outlives this unit, the gradients do not."""
        if not in_pass.last and not self._each:
            # accelerate no_sync: set_requires_gradient_sync(False) keeps whole gradients until the last micro step.
            self._reshard(in_pass, position, unit, unsharded)
            self.keep_gradients(in_pass, position, unit)
            return reduce_input
        self._accumulated.add(self._builder.after(in_pass, position), in_pass, self._layout.reduced(unit))
        return self.reduce(in_pass, position, unit, unsharded, reduce_input)

    def keep_gradients(self, in_pass: Pass, position: int, unit: Unit) -> None:
        """Of a micro step that reduces nothing: added to what is held, or held in the reduce type."""
        at, parameters = self._builder.after(in_pass, position), self._layout.reduced(unit)
        self._accumulated.add(at, in_pass, parameters)
        sizes = self._layout.gradient_bytes if self._accumulated.casts else ()
        self._accumulated.take(at, in_pass, self._layout.trace.parameters, sizes, parameters)

    def _reshard(self, in_pass: Pass, position: int, unit: Unit, unsharded: dict[str, Unsharded]) -> None:
        handle = unsharded.pop(unit.name, None)
        if handle is not None:
            self._builder.free_each(self._builder.after(in_pass, position), handle)

    def reduce(
        self, in_pass: Pass, position: int, unit: Unit, unsharded: dict[str, Unsharded], reduce_input: Handle | None
    ) -> Handle | None:
        """Reshards a unit, and reduces what is held of its gradients; gives the reduce-scatter's input, which stands
        until the next one's, instead of `reduce_input`, the one before."""
        builder = self._builder
        at = builder.after(in_pass, position)
        parameters = self._layout.reduced(unit)
        self._reshard(in_pass, position, unit, unsharded)
        if reduce_input is not None:
            builder.free(at, reduce_input)
        if not parameters:
            return None
        whole = self._layout.reduced_whole(unit)
        fresh = builder.alloc(at, whole, _COMMUNICATION, "reduce-scatter input", unit.name)
        # A loop variable of foreach_reduce keeps the last gradient until it returns; of one rank the loop is left out.
        kept = parameters[-1:] if self._layout.ranks(unit) > 1 else []
        self._free_gradients(in_pass, position, parameters[: len(parameters) - len(kept)])
        reduced = builder.alloc(
            at,
            self._layout.reduced_shard(unit),
            _COMMUNICATION,
            "reduce-scatter output",
            unit.name,
            cuda_stream=REDUCE_SCATTER_STREAM,
        )
        if unit.experts and self._layout.ranks(unit) == 1:
            # foreach_reduce of one rank divides by the number of batches, out of place.
            divided = builder.alloc(
                at, whole, _COMMUNICATION, "gradient, divided", unit.name, cuda_stream=REDUCE_SCATTER_STREAM
            )
            builder.free(at, divided)
        if self._layout.master != self._layout.reduce:
            cast = builder.alloc(
                at,
                self._layout.gradient_shard(unit),
                Category.GRADIENTS,
                "gradient shard",
                unit.name,
                cuda_stream=REDUCE_SCATTER_STREAM,
            )
            if self._layout.context.replicate == 1:
                builder.free(at, reduced)
            else:
                self._in_all_reduce.append(reduced)
            reduced = cast
        if self._adds(parameters) or self._adds_to_earlier(in_pass):
            builder.free(at, reduced)
        elif not self._layout.on_host:
            self.gradient_shards.append(reduced)
        elif self._layout.context.replicate > 1 and self._layout.master == self._layout.reduce:
            self._in_all_reduce.append(reduced)
        else:
            builder.free(at, reduced)
        self._free_gradients(in_pass, position, kept)
        return fresh

    def _adds(self, parameters: list[int]) -> bool:
        """Whether all that is reduced is added to gradients that are there: those of weights that are tied.

        _fsdp_collectives.py: foreach_reduce adds to `sharded_param.grad` where there is one. Groups whose inputs need
        no gradients come at the very end, the root's before the embedding's (_fsdp_state.py:
        _root_post_backward_final_callback goes through them as the modules stand).
        """
        infos = self._layout.trace.parameters
        weights = {infos[index].tied_to or infos[index].name for index in parameters}
        there = weights <= self._reduced
        self._reduced |= weights
        return there

    def _adds_to_earlier(self, in_pass: Pass) -> bool:
        """The same, of gradients that an earlier micro step has reduced."""
        return self._each and in_pass.micro_step > 0 and not self._layout.on_host

    def _free_gradients(self, in_pass: Pass, position: int, parameters: list[int]) -> None:
        """The copy-in done, whole gradients go."""
        at = self._builder.after(in_pass, position)
        first = next(p for p in self._builder.passes if p.iteration == in_pass.iteration)
        holder = in_pass if self._each else first
        if not self._accumulated.holds:
            self._builder.free_gradients(at, holder, parameters)
            return
        for index in parameters:
            if not self._accumulated.drop(at, index):
                self._builder.free_gradient(at, holder, index)
