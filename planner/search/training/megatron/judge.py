"""Judges a job of Megatron-core: every rank of one pipeline replayed, and its schedule run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_plan.planner.megatron import schedules, settings, stages
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.arguments import Run, command_of
from gpu_plan.planner.megatron.huggingface import architecture_of
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import Part
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.piped.step import Judge, PipedRank, PipedStep, kept
from gpu_plan.planner.search.training.piped.times import StageTime, stage_time, step_time, timeline_of
from gpu_plan.planner.speed.in_step import collectives_of
from gpu_plan.planner.speed.model import Collective, OptimizerWork, StepTime
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import INSTALLED_LOSS, Stack


def architecture(evaluator: Judge) -> Architecture:
    """The model as Megatron-core builds it; UsageError for one that it does not build."""
    found = architecture_of(evaluator.config, evaluator.provider.spec().id)
    asked = settings.number(dict(evaluator.workload.settings), "mtp_layers")
    return found if asked is None else replace(found, next_tokens=asked)


def refusal(evaluator: Judge, layout: Layout, cuts: Sequence[Batch]) -> str | None:
    """Why a job cannot run so, in one line; None where it can."""
    model, workload = architecture(evaluator), evaluator.workload
    problem = _not_its_own(evaluator, layout)
    if problem is not None:
        return problem
    problem = settings.refused(model, layout, workload.seq_len) or stages.refused(model.layers, layout)
    if problem is None:
        problem = settings.refused_instances(dict(workload.settings), model, layout, evaluator.cluster.world_size)
    if problem is not None:
        return problem
    if model.next_tokens and layout.cross_entropy in _WITHOUT_PREDICTIONS:
        return (
            f"--set megatron.cross_entropy={layout.cross_entropy} is of models without layers that predict further"
            " tokens: add --set megatron.mtp_layers=0"
        )
    if model.positions and workload.seq_len > model.positions:
        return f"--seq-len {workload.seq_len} is more than the model's {model.positions} positions"
    if not runnable(layout, cuts):
        return schedules.refused(layout, max(cut.accumulation_steps for cut in cuts))
    return None


def runnable(layout: Layout, cuts: Sequence[Batch]) -> list[Batch]:
    """Batches that the schedule can run."""
    return [cut for cut in cuts if schedules.refused(layout, cut.accumulation_steps) is None]


def judge_megatron(evaluator: Judge, family: Family, batch: Batch) -> tuple[PipedStep, StepTime]:
    """Every rank of one pipeline, and the step's time."""
    layout = family.layout
    assert layout is not None
    alone, cuts, traces = ranks_of(evaluator, family, batch)
    ranks = tuple(evaluator.beside_others(family, batch, one) for one in alone)
    profiles = tuple(measure(one.plan.stream, batch.micro_batch) for one in ranks)
    known: dict[int, StageTime] = {}
    times = []
    for cut in cuts:
        trace = traces[cut]
        if id(trace) not in known:
            known[id(trace)] = _time(evaluator, family, batch, trace, cut)
        times.append(known[id(trace)])
    # p2p_communication.py: _communicate waits for what is sent as for what is received; with virtual stages it goes
    # beside what is computed (--overlap-p2p-communication).
    timeline = timeline_of(evaluator, batch, ranks, cuts, traces, times, waits=layout.virtual == 1)
    step = PipedStep(ranks=ranks, profiles=profiles, timeline=timeline)
    return step, step_time(evaluator, family, batch, step, times)


def ranks_of(
    evaluator: Judge, family: Family, batch: Batch
) -> tuple[tuple[PipedRank, ...], Sequence[StageCut], dict[StageCut, StepTrace]]:
    """Every rank of one pipeline with this model alone, all stages, and the step that each of them traces."""
    layout = family.layout
    assert layout is not None
    model = architecture(evaluator)
    cuts = stages.cuts(model.layers, layout)
    traces = {cut: _trace(evaluator, family, Part(model=model, layout=layout, cut=cut), batch) for cut in cuts}
    key = (family, batch.accumulation_steps, tuple((cut, trace.samples) for cut, trace in traces.items()))
    ranks = kept(
        evaluator.kept_pipelines,
        key,
        lambda: tuple(
            _rank(evaluator, family, batch, rank, Part(model=model, layout=layout, cut=cuts[rank]), cuts, traces)
            for rank in range(layout.pipeline)
        ),
    )
    return ranks, cuts, traces


def command(evaluator: Judge, family: Family, batch: Batch) -> str:
    """The shell command with which Megatron-LM runs it on one node."""
    layout, workload, cluster = family.layout, evaluator.workload, evaluator.cluster
    assert layout is not None
    run = Run(
        name=evaluator.provider.spec().id,
        seq_len=workload.seq_len,
        micro_batch=batch.micro_batch,
        global_batch=batch.micro_batch * batch.accumulation_steps * (cluster.world_size // layout.copy_ranks),
        half=workload.precision.compute_dtype,
        settings=dict(workload.settings),
        nodes=cluster.nodes,
        per_node=cluster.gpus_per_node,
        clips_to=workload.max_grad_norm,
    )
    return command_of(architecture(evaluator), layout, run)


def _trace(evaluator: Judge, family: Family, part: Part, batch: Batch) -> StepTrace:
    return evaluator.provider.trace(replace(evaluator.variant(family), part=part), batch.micro_batch)


def _time(evaluator: Judge, family: Family, batch: Batch, trace: StepTrace, cut: StageCut) -> StageTime:
    """One micro batch through one stage."""
    layout = family.layout
    assert layout is not None
    calls = calls_of(evaluator, layout, trace, cut, batch, evaluator.workload.seq_len)
    return stage_time(evaluator, family, batch, trace, calls, _added(evaluator, layout, trace))


def calls_of(
    evaluator: Judge, layout: Layout, trace: StepTrace, cut: StageCut, batch: Batch, seq_len: int
) -> tuple[Collective, ...]:
    """What a stage's ranks send each other for one micro batch."""
    # Transformer Engine and Megatron-core wait in backward for what a product runs beside (module/linear.py,
    # tensor_parallel/layers.py: LinearWithGradAccumulationAndAsyncCommunication).
    inside = collectives_of(trace, _gathering(layout), layout.expert, batch.micro_batch, asynchronous=True)
    calls = tuple(replace(one, stride=layout.expert_tensor) if one.kind == "all_to_all" else one for one in inside)
    return calls + exchanged(architecture(evaluator), layout, cut, batch.micro_batch * seq_len)


def exchanged(model: Architecture, layout: Layout, cut: StageCut, tokens: int) -> tuple[Collective, ...]:
    """What context parallel ranks exchange in one micro batch, heads for tokens: queries, keys, values and the output
    of every layer, and their gradients; attention waits for each. What goes round goes beside the products."""
    if layout.context == 1 or layout.context_comm != "a2a":
        return ()
    own = tokens // layout.context * model.head_dim * _HALF // layout.tensor
    layers = cut.end - cut.first
    again = layout.recompute == "full" or layout.runs_again("core_attn")
    return tuple(
        Collective(
            kind="all_to_all",
            bytes=heads * own,
            count=count * layers * (1 + (again and phase == "backward")),
            phase=phase,
            per="micro_step",
            overlap=False,
            ranks=layout.context,
            stride=layout.tensor,
            axis="context",
        )
        for phase in ("forward", "backward")
        for heads, count in ((model.heads, 2), (model.groups, 2))
    )


def _added(evaluator: Judge, layout: Layout, trace: StepTrace) -> OptimizerWork:
    """Gradients added to their buffers after every micro batch, where products do not do so themselves
    (distributed_data_parallel.py: _make_backward_post_hook)."""
    if layout.fused_gradients:
        return OptimizerWork(parameter_bytes_read_written=0)
    workload = evaluator.workload
    buffers = settings.gradient_bytes(dict(workload.settings), workload.precision.compute_dtype)
    elements = sum(parameter.numel for parameter in trace.parameters)
    return OptimizerWork(parameter_bytes_read_written=elements * (_HALF + 2 * buffers))


_HALF = 2
"""Bytes of an element of the gradient itself."""


def _gathering(layout: Layout) -> int:
    """Ranks that gather from one another: where experts' do so too, the larger group, as a trace does not tell them
    apart."""
    experts = layout.expert_tensor * (layout.expert if layout.dispatcher == "allgather" else 1)
    return max(layout.tensor, experts)


def _rank(
    evaluator: Judge,
    family: Family,
    batch: Batch,
    rank: int,
    part: Part,
    cuts: Sequence[StageCut],
    traces: dict[StageCut, StepTrace],
) -> PipedRank:
    layout = part.layout
    own = [rank + place * layout.pipeline for place in range(layout.virtual)]
    trace, spans = joined([(stage, cuts[stage], traces[cuts[stage]]) for stage in own])
    place = PipelineRank(
        rank=rank,
        ranks=layout.pipeline,
        schedule=Schedule.INTERLEAVED if layout.virtual > 1 else Schedule.ONE_F_ONE_B,
        order=schedules.actions(layout, rank, batch.accumulation_steps),
        micro_batches=batch.accumulation_steps,
        spans=spans,
    )
    replayed = replace(place, **_shorter(layout, rank, batch.accumulation_steps))
    context = replace(evaluator.context(family, batch.accumulation_steps, trace, replayed), part=part)
    return PipedRank(place=place, context=context, plan=family.strategy.rank(context))


def _shorter(layout: Layout, rank: int, micro_batches: int) -> dict[str, Any]:
    """As many micro batches as bring the schedule to where it repeats itself: what stands is the same from then on."""
    enough = layout.pipeline + 2 if layout.virtual == 1 else 3 * layout.group_size
    fewer = min(micro_batches, enough)
    return {"order": schedules.actions(layout, rank, fewer), "micro_batches": fewer}


_COMMON = ("megatron.", "clip.", "memory.", "alloc.", "gpu.", "attention.")
"""Beginnings of settings that say something about a job whoever runs it."""


_WITHOUT_PREDICTIONS = ("verl-fused", "verl-value")
_OF_EXPERTS = {"dispatcher", "router_dtype", "grouped_experts", "expert_capacity", "expert_load"}


def _not_its_own(evaluator: Judge, layout: Layout) -> str | None:
    """Why options about other engines' loops cannot be given to this one; None where none is."""
    workload = evaluator.workload
    odd = next((key for key, _ in workload.settings if not key.startswith(_COMMON)), None)
    if odd is not None:
        return f"--set {odd} says nothing about Megatron-core's own loop: drop it"
    if workload.fused or workload.loss != INSTALLED_LOSS:
        return "Megatron-core has losses of its own: --set megatron.cross_entropy=native or te fuses them"
    if workload.stack is not Stack.ACCELERATE:
        return f"--stack {workload.stack} runs a loop of its own: drop it"
    keys = {key.removeprefix("megatron."): value for key, value in workload.settings if key.startswith("megatron.")}
    if layout.tensor == 1 and "sequence_parallel" in keys:
        return "--set megatron.sequence_parallel is about tensor parallel ranks: add --tp"
    about = sorted(_OF_EXPERTS & keys.keys())
    if about and architecture(evaluator).experts is None:
        return f"--set megatron.{about[0]}: this model has no experts"
    if layout.context == 1 and "context_comm" in keys:
        return "--set megatron.context_comm is about context parallel ranks: add --cp"
    if layout.recompute != "selective" and "recompute_modules" in keys:
        return "--set megatron.recompute_modules is about --checkpointing selective: add it"
    if layout.recompute != "full" and ("recompute_method" in keys or "recompute_layers" in keys):
        return "--set megatron.recompute_method and recompute_layers are about --checkpointing full: add it"
    return None
