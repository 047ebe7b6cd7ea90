"""Stages that FSDP2 shards over the data parallel ranks.

A step gathers every unit once, in its first micro batch's forward, and reduces once, when the last backward is over:
torch/distributed/pipelining/stage.py (torch 2.13) switches resharding and gradient synchronisation off for every
backward (backward_maybe_with_nosync) and calls each unit's post_backward itself (perform_reduce_grad). Units are those
of transformers' own plan, as torchtitan's: the embedding, each layer, norm with head. Gradients are reduced in fp32.
"""

from gpu_plan.planner.memory.optimizer.steps import LocalTensor
from gpu_plan.planner.pipeline.places import StageSpan
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, nbytes
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.native import native_units, reduced_in_fp32
from gpu_plan.planner.strategy.fsdp2.passes import Passes, Unsharded, drop_gradient_shards
from gpu_plan.planner.strategy.fsdp2.rank import place_shards, place_steps, sharded_regime
from gpu_plan.planner.strategy.fsdp2.units import Unit
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.pipeline.builder import PipelineBuilder
from gpu_plan.planner.strategy.pipeline.notes import pipeline_notes
from gpu_plan.planner.trace.events import StepTrace


def piped_shard(context: RankContext) -> RankPlan:
    """A rank whose stages are sharded over the ranks with other samples."""
    place = context.pipeline
    assert place is not None
    context = reduced_in_fp32(context)
    builder = PipelineBuilder(context.trace, place)
    regime = sharded_regime(context.precision, context.stack, context.peft)
    layout = Layout(context, regime, _units, builder)
    passes = Passes(layout)
    place_shards(layout)
    unsharded: dict[str, Unsharded] = {}
    for in_pass in builder.passes:
        if in_pass.micro_step == 0:
            unsharded = passes.forward(in_pass)
        for unit, _, leave in layout.backward_order():
            # One that a model alone would reduce at the very end is done with its own stage, which may go back first.
            passes.keep_gradients(in_pass, min(leave, _stage_of(layout, builder, unit).backward[1] - 1), unit)
        passes.add_gradients(in_pass)
        if in_pass.last:
            _reduce(layout, passes, builder, unsharded, in_pass.iteration)
    local = [
        LocalTensor(name=p.name, numel=layout.shards[i].shard_numel, dtype=layout.master, group=int(p.split))
        for i, p in enumerate(layout.trace.parameters)
        if layout.grouping.steps[i]
    ]
    place_steps(layout, local)
    drop_gradient_shards(builder, passes.gradient_shards)
    elements = sum(tensor.numel for tensor in local)
    return RankPlan(
        stream=builder.build(),
        collectives=_collectives(layout),
        optimizer_work=optimizer_work(context.optimizer, elements, nbytes(1, layout.master), clipping=context.clipping),
        notes=pipeline_notes(context),
    )


def _stage_of(layout: Layout, builder: PipelineBuilder, unit: Unit) -> StageSpan:
    """Where the stage that a unit runs in lies."""
    start, _ = layout.forward_span(unit)
    return next(span for span in builder.rank.spans if span.forward[0] <= start < span.forward[1])


def _units(trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
    """Nothing is resharded between micro batches: it would be gathered again for each."""
    return native_units(trace, False)


def _reduce(
    layout: Layout, passes: Passes, builder: PipelineBuilder, unsharded: dict[str, Unsharded], iteration: int
) -> None:
    """Every unit, in the order of `named_modules`, once its stage's last backward is over."""
    in_pass = next(p for p in builder.last_passes if p.iteration == iteration)
    passes.begin_reducing()
    for span in reversed(builder.rank.spans):
        reduce_input = None
        position = span.backward[1] - 1
        for unit in layout.forward_order:
            if _stage_of(layout, builder, unit) is span:
                reduce_input = passes.reduce(in_pass, position, unit, unsharded, reduce_input)
        if reduce_input is not None:
            builder.free(builder.after(in_pass, position), reduce_input)


def _collectives(layout: Layout) -> tuple[Collective, ...]:
    """One gathering and one reduction of each unit in a step; nothing computes beside the latter. Ranks that compute
    a stage together stand side by side, those that share it out that far apart."""
    ranks, stride = layout.context.shard_ranks, layout.context.tensor_parallel
    gathers = [
        Collective(
            kind="all_gather",
            bytes=layout.gathered(unit),
            phase="forward",
            per="step",
            overlap=True,
            ranks=ranks,
            stride=stride,
        )
        for unit in layout.units
    ]
    scatters = [
        Collective(
            kind="reduce_scatter",
            bytes=layout.reduced_whole(unit),
            phase="step",
            per="step",
            overlap=False,
            ranks=ranks,
            stride=stride,
        )
        for unit in layout.units
    ]
    return (*gathers, *scatters)
