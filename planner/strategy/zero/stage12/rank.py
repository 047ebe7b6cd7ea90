"""ZeRO-1 and ZeRO-2 on one rank: load, gradients, step. They differ in when gradients are reduced and dropped.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: DeepSpeedZeroOptimizer (__init__, process_gradients,
reduce_gradients, initialize_optimizer_states, step). In DeepSpeed 0.19.8 bf16 gradients are accumulated in bf16
unless `data_types.grad_accum_dtype` says otherwise, so stage 1 does not go to BF16_Optimizer
(runtime/engine.py: get_data_types, _do_optimizer_sanity_check), and the optimizer's state appears in its first
step.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_plan.planner.memory.optimizer.steps import LocalTensor, place_state, place_step
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, nbytes, place_buffers, place_workspaces
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero import common
from gpu_plan.planner.strategy.zero.stage12.bucket import Bucket
from gpu_plan.planner.strategy.zero.stage12.flat import (
    FlatGroup,
    Ownership,
    ownership,
    slices_by_parameter,
    worst_rank,
)
from gpu_plan.planner.trace.events import Category, Mark

if TYPE_CHECKING:
    from gpu_plan.planner.memory.stream.placing import Handle

_REDUCING = (8, 40)
"""Operators of one bucket's all-reduce, fewest and most, counted in a run of DeepSpeed 0.19.8's own hooks
(tests/trace/test_hooks_issued.py; stage_1_and_2.py: average_tensor, allreduce_and_copy_with_multiple_ranks). Fewest:
two buffers, the flattened one, its division, the all-reduce, and copies of what two ranks share."""
_ARRIVING = (1, 7)
"""The same of every gradient: into the bucket (reduce_independent_p_g_buckets_and_remove_grads)."""

_FLATTENING = "a second copy of the weights, which DeepSpeed makes while loading only if there is room, is not counted"


def flat_groups(context: RankContext) -> list[FlatGroup]:
    """The optimizer's groups as flat buffers."""
    parameters = context.trace.parameters
    return [
        FlatGroup(tuple(group), tuple(parameters[index].numel for index in group), context.world_size)
        for group in common.optimizer_groups(context)
    ]


def _issued(gradients: int) -> tuple[int, int]:
    return _REDUCING[0] + _ARRIVING[0] * gradients, _REDUCING[1] + _ARRIVING[1] * gradients


def rank_plan(context: RankContext, *, partitioned: bool) -> RankPlan:
    """The worst rank's plan under stage 1 (`partitioned` false) or 2.

    Reduced along the way, a rank's gradients take their place when the first of its parameters is ready: earliest,
    while most activations still stand, on the rank that owns what comes first in backward. It is judged beside the
    rank whose partition reaches into most parameters.
    """
    groups = flat_groups(context)
    most = worst_rank(groups)
    worst = _Stage12(context, partitioned, groups, most)
    plan = worst.plan()
    earliest = worst.earliest_rank()
    if earliest in (None, most.rank):
        return plan
    return replace(plan, other_ranks=(plan_of_rank(context, earliest, partitioned=partitioned),))


def plan_of_rank(context: RankContext, rank: int, *, partitioned: bool) -> RankPlan:
    """One rank's plan, whether it is the worst or not."""
    groups = flat_groups(context)
    return _Stage12(context, partitioned, groups, ownership(groups, rank)).plan()


class _Stage12:
    def __init__(self, context: RankContext, partitioned: bool, groups: list[FlatGroup], owned: Ownership) -> None:
        self.context = context
        self.partitioned = partitioned
        self.offload = context.offload is Offload.OPTIMIZER
        self.config = common.zero_config(context, 2 if partitioned else 1)
        self.dtype = common.model_dtype(context.precision)
        self.builder = StreamBuilder(context.trace, context.accumulation_steps)
        self.groups = groups
        self.owned = owned
        self.numels = dict(pair for group in groups for pair in zip(group.parameters, group.numels, strict=True))
        self.zeros: list[list[Handle]] = []
        self.bucket = Bucket(
            builder=self.builder,
            config=self.config,
            dtype=self.dtype,
            owned=self.owned,
            slices=slices_by_parameter(self.groups),
            partitioned=partitioned,
            offload=self.offload,
        )

    def plan(self) -> RankPlan:
        self._load()
        place_workspaces(self.builder, self.context.capability)
        for in_pass in self.builder.passes:
            self.bucket.reduced = []
            if self.partitioned or self.config.overlap:
                self._reduce_along(in_pass)
            else:
                self._reduce_afterwards(in_pass)
            self._stand_in_for_missing(in_pass)
            if in_pass.last:
                self._step(in_pass.iteration)
        elements = sum(group.partition for group in self.groups)
        return RankPlan(
            stream=self.builder.build(),
            host_bytes=self._host_bytes() if self.offload else 0,
            collectives=self._collectives(),
            optimizer_work=optimizer_work(
                self.context.optimizer,
                elements,
                4,
                on_host=self.offload,
                clipping=self.context.clipping,
                flat=self.dtype != common.MASTER,
            ),
            notes=(*common.notes(self.context, self.config), self._rank_note(), _FLATTENING),
        )

    def earliest_rank(self) -> int | None:
        """The last rank that owns some of the parameter that is ready first; None where nothing goes out then."""
        arrivals = self._arrivals()
        if not arrivals or self.offload or not (self.partitioned or self.config.overlap):
            return None
        return max(part.rank for part in self.bucket.slices[arrivals[0][1]])

    # -- load ----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        builder = self.builder
        common.place_frozen(builder, self.dtype, [parameter.numel for parameter in self.context.trace.parameters])
        place_buffers(builder)
        # The flat buffer is filled through the CPU when the device has no room for a second copy of the weights
        # (flatten_on_accelerator), so that copy never decides whether a job fits: it is not counted.
        for number, group in enumerate(self.groups):
            size = nbytes(group.padded, self.dtype)
            builder.alloc(builder.at_load(), size, Category.PARAMETERS, f"flat weights, group {number}")
        for number, group in enumerate(self.groups):
            self._master(number, group)
        if self.offload:
            largest = max(max(group.numels) for group in self.groups)
            size = nbytes(largest, self.dtype)
            builder.alloc(builder.at_load(), size, Category.GRADIENTS, "gradient buffer of the largest parameter")
            return
        zeros = [
            builder.alloc(
                builder.at_load(),
                nbytes(group.partition, common.MASTER),
                Category.GRADIENTS,
                "zero gradient at start",
            )
            for group in self.groups
        ]
        for handle in zeros:
            builder.free(builder.at_load(), handle)

    def _master(self, number: int, group: FlatGroup) -> None:
        """fp32 copy of the own partition; under offload it only passes through the device."""
        builder = self.builder
        clone = builder.alloc(
            builder.at_load(), nbytes(group.partition, self.dtype), Category.PARAMETERS, "partition clone"
        )
        master = clone
        if self.dtype != common.MASTER:
            size = nbytes(group.partition, common.MASTER)
            master = builder.alloc(builder.at_load(), size, Category.PARAMETERS, f"fp32 weights, group {number}")
            builder.free(builder.at_load(), clone)
        if self.offload:
            builder.free(builder.at_load(), master)

    # -- gradients -----------------------------------------------------------------------------------------

    def _arrivals(self) -> list[tuple[int, int]]:
        """(event, parameter) of every gradient, in time order."""
        found = []
        for group in self.groups:
            for index in group.parameters:
                event = self.builder.gradient_event(index)
                if event is not None:
                    found.append((event, index))
        return sorted(found)

    def _first(self, in_pass: Pass) -> Pass:
        return next(other for other in self.builder.passes if other.iteration == in_pass.iteration)

    def _reduce_along(self, in_pass: Pass) -> None:
        """Stage 2, or stage 1 with overlap_comm: each gradient as it becomes ready."""
        builder, boundary = self.builder, in_pass.last
        reduces = self.partitioned or boundary
        holder = in_pass if self.partitioned else self._first(in_pass)
        for event, index in self._arrivals():
            at = builder.after(in_pass, event)
            self.bucket.open(at)
            if holder is not in_pass:
                builder.free_gradient(at, in_pass, index)
            if reduces:
                self.bucket.arrive(at, index, holder, boundary)
        if reduces:
            self.bucket.close(builder.at_mark(in_pass, Mark.BACKWARD_END), boundary)

    def _reduce_afterwards(self, in_pass: Pass) -> None:
        """Stage 1: whole gradients gather up; after the last backward they are reduced in the groups' order."""
        builder, first = self.builder, self._first(in_pass)
        arrivals = self._arrivals()
        for event, index in arrivals:
            self.bucket.open(builder.after(in_pass, event))
            if in_pass is not first:
                builder.free_gradient(builder.after(in_pass, event), in_pass, index)
        if not in_pass.last:
            return
        end = builder.at_mark(in_pass, Mark.BACKWARD_END)
        ready = {index for _, index in arrivals}
        for group in self.groups:
            for index in group.parameters:
                if index in ready:
                    self.bucket.arrive(end, index, first, True)
        self.bucket.close(end, True)

    def _stand_in_for_missing(self, in_pass: Pass) -> None:
        """Zeros for what the rank updates and no backward reaches, such as a pooler: get_all_grad_tensors.

        Stage 2 takes stock after every micro step and keeps what it found first, stage 1 after the last one alone.
        """
        found_at = in_pass.micro_step == 0 if self.partitioned else in_pass.last
        if self.offload or not found_at:
            return
        end = self.builder.at_mark(in_pass, Mark.BACKWARD_END)
        self.zeros = [
            [
                self.builder.alloc(
                    end, nbytes(self.numels[part.parameter], self.dtype), Category.GRADIENTS, "zero gradient"
                )
                for part in parts
                if self.builder.gradient_event(part.parameter) is None
            ]
            for parts in self.owned.slices
        ]

    # -- step ----------------------------------------------------------------------------------------------

    def _step(self, iteration: int) -> None:
        builder = self.builder
        if self.offload:
            return
        size = nbytes(self.owned.largest, common.NORM)
        builder.transient(builder.at_step(iteration), size, Category.TEMPORARY, "gradient norm in fp64")
        for number, group in enumerate(self.groups):
            pieces = len(self.owned.slices[number]) + (1 if group.padding(self.owned.rank) else 0)
            flat = None
            if pieces != 1:
                size = nbytes(group.partition, self.dtype)
                flat = builder.alloc(builder.at_step(iteration), size, Category.GRADIENTS, "flat gradient partition")
            gradient = flat
            if self.dtype != common.MASTER:
                size = nbytes(group.partition, common.MASTER)
                gradient = builder.alloc(
                    builder.at_step(iteration), size, Category.GRADIENTS, "fp32 gradient partition"
                )
                if flat is not None:
                    builder.free(builder.at_step(iteration), flat)
            for zeros in self.zeros[number]:
                builder.free(builder.at_step(iteration), zeros)
            if number == len(self.groups) - 1 and self.bucket.kept is not None:
                builder.free(builder.at_step(iteration), self.bucket.kept)
                self.bucket.kept = None
            master = [LocalTensor(name=f"partition of group {number}", numel=group.partition, dtype=common.MASTER)]
            if iteration == 0:
                place_state(builder, self.context.optimizer, master)
            place_step(builder, iteration, self.context.optimizer, master)
            if gradient is not None:
                builder.free(builder.at_step(iteration), gradient)

    # -- the rest ------------------------------------------------------------------------------------------

    def _host_bytes(self) -> int:
        """Pinned: masters, their gradients, 16-bit staging, one gradient, accumulated ones. Pageable: Adam's state.

        deepspeed/ops/adam/cpu_adam.py: DeepSpeedCPUAdam.step.
        """
        total = 0
        pinned = self.config.pin_memory
        for group in self.groups:
            master = nbytes(group.partition, common.MASTER)
            total += 2 * common.pinned_bytes(master, pinned) + 2 * master
            total += common.pinned_bytes(nbytes(group.partition, self.dtype), pinned)
        total += common.pinned_bytes(nbytes(max(self.numels.values()), self.dtype), pinned)
        if self.partitioned and self.context.accumulation_steps > 1:
            total += sum(common.pinned_bytes(nbytes(self.numels[i], self.dtype), pinned) for i in self.owned.parameters)
        return total

    def _collectives(self) -> tuple[Collective, ...]:
        """Buckets are all-reduced (use_multi_rank_bucket_allreduce), weights gathered in one call per group."""
        collectives = [
            Collective(
                kind="all_reduce",
                bytes=nbytes(elements, self.dtype),
                phase="backward",
                per="micro_step" if self.partitioned else "step",
                overlap=self.config.overlap,
                issued=_issued(gradients),
            )
            for elements, gradients in self.bucket.reduced
        ]
        for group in self.groups:
            size = nbytes(group.padded, self.dtype)
            collectives.append(Collective(kind="all_gather", bytes=size, phase="step", per="step", overlap=False))
        if self.offload:
            collectives += self._transfers()
        return tuple(collectives)

    def _transfers(self) -> list[Collective]:
        elements = sum(group.partition for group in self.groups)
        gradients, weights = nbytes(elements, common.MASTER), nbytes(elements, self.dtype)
        moved = [
            Collective(kind="device_to_host", bytes=gradients, phase="backward", per="step", overlap=False),
            Collective(kind="host_to_device", bytes=weights, phase="step", per="step", overlap=False),
        ]
        if self.partitioned and self.context.accumulation_steps > 1:
            whole = nbytes(self.owned.touched, self.dtype)
            moved.append(
                Collective(kind="device_to_host", bytes=whole, phase="backward", per="micro_step", overlap=False)
            )
            moved.append(
                Collective(kind="host_to_device", bytes=whole, phase="backward", per="micro_step", overlap=False)
            )
        return moved

    def _rank_note(self) -> str:
        rank, world = self.owned.rank, self.context.world_size
        return f"rank {rank} of {world} is shown: no other has a higher peak"


__all__ = ["FlatGroup", "Ownership", "flat_groups", "rank_plan"]
