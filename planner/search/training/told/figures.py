"""What a plan of training is told as: its words, its choice, its time, what it leaves, how it is launched."""

from typing import Any

from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.plan.figures import DegreeFigures, HostFigures, SpeedFigures, StrategyChoice
from gpu_plan.planner.search.document import uncertain
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.finer import EXPANDS
from gpu_plan.planner.search.training.megatron import judge as megatron
from gpu_plan.planner.search.training.notes.checkpointing import checkpoint_every
from gpu_plan.planner.search.training.ranks.crowded import crowded_figures
from gpu_plan.planner.search.training.ranks.told import ranks_of
from gpu_plan.planner.search.training.told.command import launch_command, wrapped_classes
from gpu_plan.planner.search.training.told.own_trainer import runs_own_trainer, trainer_command
from gpu_plan.planner.speed.model import AxisTime
from gpu_plan.planner.strategy.saved_files import SavedFiles, saved_files
from gpu_plan.planner.workload.training import Checkpointing


def words_of(judgement: StepJudgement) -> str:
    """`FSDP2, micro batch 1, full checkpointing`."""
    family = judgement.family
    extra = "" if family.checkpointing is Checkpointing.NONE else f", {family.checkpointing_words}"
    return f"{judgement.title}, micro batch {judgement.batch.micro_batch}{extra}"


def choice_of(evaluator: Evaluator, judgement: StepJudgement) -> StrategyChoice:
    """Strategy, offload, batch and checkpointing."""
    family, batch, own = judgement.family, judgement.batch, judgement.family.own(evaluator.workload)
    return StrategyChoice(
        name=family.strategy.name,
        data_parallel=evaluator.cluster.world_size // family.copy_ranks,
        tensor_parallel=family.tensor_parallel,
        expert_parallel=family.expert_parallel,
        context_parallel=family.context_parallel,
        dp_replicate=evaluator.replicas(family),
        **_stages(family),
        zero_stage=family.strategy.traits.stage,
        offload=str(family.offload),
        micro_batch_size=batch.micro_batch,
        gradient_accumulation_steps=batch.accumulation_steps,
        checkpointing=str(family.checkpointing),
        checkpoint_every=checkpoint_every(family.checkpointing, own),
        reshards=own.setting("fsdp.reshard_after_forward", "true") == "true",
        expandable_segments=own.setting(EXPANDS, "false") == "true",
        precision=str(evaluator.workload.precision),
    )


def speed_of(evaluator: Evaluator, judgement: StepJudgement) -> SpeedFigures:
    """Of one optimizer step."""
    time, has_sequence = judgement.time, evaluator.provider.spec().has_sequence
    return SpeedFigures(
        step_seconds=time.step_seconds,
        step_seconds_low=time.low_seconds,
        step_seconds_high=time.high_seconds,
        tokens_per_second_per_gpu=time.tokens_per_second_per_gpu if has_sequence else None,
        samples_per_second=time.samples_per_second,
        mfu=time.mfu,
        basis=time.basis,  # type: ignore[arg-type]
        parts={
            "forward": time.forward_seconds,
            "backward": time.backward_seconds,
            "recompute": time.recompute_seconds,
            "optimizer": time.optimizer_seconds,
            "communication": time.communication_seconds,
            "host_transfer": time.host_transfer_seconds,
            "exposed_communication": time.exposed_communication_seconds,
            **({} if judgement.piped is None else {"bubble": judgement.piped.bubble_seconds}),
        },
        scaling=None if time.scaling is None else time.scaling(),
        degrees=() if time.degrees is None else tuple(_degree(evaluator, one) for one in time.degrees()),
    )


def _degree(evaluator: Evaluator, one: AxisTime) -> DegreeFigures:
    everybody = evaluator.cluster.world_size
    return DegreeFigures(
        axis=one.axis,
        ranks=None if one.axis == "host" else one.ranks or everybody,
        calls=one.calls,
        sent_bytes=one.bytes,
        seconds=one.seconds,
        exposed_seconds=one.exposed_seconds,
    )


def saved_of(evaluator: Evaluator, judgement: StepJudgement) -> SavedFiles:
    """What a run of it leaves on disk."""
    regime = evaluator.variant(judgement.family).regime
    trace = evaluator.provider.static_trace(regime)
    return saved_files(trace, regime, judgement.family.strategy.traits, evaluator.workload)


def host_of(judgement: StepJudgement) -> HostFigures | None:
    """None on a CPU, whose RAM is the device."""
    if judgement.shares_host:
        return None
    expected = {f"{term.name}_bytes": term.expected for term in judgement.host_terms}
    return HostFigures(**expected, terms=tuple(uncertain(term) for term in judgement.host_terms))


def details_of(
    evaluator: Evaluator, judgement: StepJudgement, script: str | None, *, lost: bool, best: bool
) -> Details:
    """The launch command of a plan that runs, classes that are wrapped, settings that the planner chose."""
    unknown = lost or judgement.piped is not None  # no launcher's options run a pipeline
    if judgement.family.layout is not None and not lost:
        command: str | None = megatron.command(evaluator, judgement.family, judgement.batch)
    elif not unknown and runs_own_trainer(judgement, evaluator.workload):
        command = trainer_command(judgement, evaluator.workload, evaluator.cluster, evaluator.provider.spec().id)
    else:
        command = None if unknown else launch_command(judgement, evaluator.workload, evaluator.cluster, script)
    told = best and not unknown and not judgement.states_only
    return Details(
        command=command,
        units=() if judgement.states_only else wrapped_classes(judgement),
        chosen=dict((*judgement.family.settings, *judgement.plan.chosen)),
        stages=() if judgement.piped is None or judgement.states_only else judgement.piped.stages,
        ranks=ranks_of(evaluator, judgement) if told else (),
        crowded=crowded_figures(evaluator, judgement) if told else None,
    )


def _stages(family: Family) -> dict[str, Any]:
    """Pipeline ranks, stages on each and their schedule, as a document names them."""
    if family.layout is not None:
        interleaved, piped_ = family.layout.virtual > 1, family.layout.pipeline > 1
        schedule = Schedule.INTERLEAVED if interleaved else Schedule.ONE_F_ONE_B
        degrees = {"pipeline_parallel": family.layout.pipeline, "virtual_stages": family.layout.virtual}
        return {**degrees, "schedule": str(schedule) if piped_ else ""}
    pipeline = family.pipeline
    if pipeline is None:
        return {"pipeline_parallel": 1, "schedule": "", "virtual_stages": 1}
    return {
        "pipeline_parallel": pipeline.degree,
        "schedule": str(pipeline.schedule),
        "virtual_stages": pipeline.virtual_stages,
    }
