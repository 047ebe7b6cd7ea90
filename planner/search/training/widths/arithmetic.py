"""What an engine gains by computing in fewer bits than whole copies of the model do.

Under mixed precision accelerate wraps a whole copy's forward in autocast: weights, norms, the residual stream and the
loss stay in fp32 (accelerator.py: prepare_model). FSDP2's `MixedPrecisionPolicy`, set up without that region
(accelerator.py: _prepare_fsdp2; utils/fsdp_utils.py: fsdp2_prepare_model), and DeepSpeed's engine compute everything in
16 bits. What that saves is not the spreading's doing, and it is another computation: plans are compared without it.
"""

from typing import Any, Protocol

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.whole import whole_copy
from gpu_plan.planner.speed.model import Collective, OptimizerWork, SpeedModel, StepWork
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Workload

_NOTHING = OptimizerWork(parameter_bytes_read_written=0)


class Judge(Protocol):
    """What is asked of the evaluator."""

    workload: Workload
    cluster: Cluster
    provider: Provider
    speed: SpeedModel
    kept_computing: dict[Any, tuple[float, ...]]

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays."""
        ...

    def judge_states(self, family: Family, batch: Batch) -> Judgement:
        """A lower bound without tracing."""
        ...

    def own_work(
        self,
        family: Family,
        batch: Batch,
        trace: StepTrace,
        optimizer: OptimizerWork,
        collectives: tuple[Collective, ...],
    ) -> StepWork:
        """What a trace computes on the job's devices, with what stands around it."""
        ...


def spared_beside_copies(evaluator: Judge, family: Family, batch: Batch) -> tuple[float, ...] | None:
    """Seconds of one sample, as `StepJudgement.seconds` has them, that a family's plan does without, because its engine
    computes in fewer bits than a whole copy would, with the same batch and checkpointing; empty where it does not.

    None where no device can hold a whole copy, or none was asked for: there is nothing that it spares beside one.
    """
    whole = whole_copy(evaluator, family, batch)
    if whole is None:
        return None
    own = _own(family)
    if own is None or not _computes_less(evaluator, own, whole):
        return ()
    try:
        wide, narrow = (_computing(evaluator, one, batch.micro_batch) for one in (whole, own))
    except NotTraceableError:  # larger than any shipped trace
        return ()
    samples = batch.micro_batch * evaluator.cluster.world_size
    return tuple(max(0.0, more - less) / samples for more, less in zip(wide, narrow, strict=True))


def _computes_less(evaluator: Judge, own: Family, whole: Family) -> bool:
    """Whether the copy runs under autocast and the engine's own model does not, as both are written."""
    wide, narrow = evaluator.variant(whole), evaluator.variant(own)
    if evaluator.workload.precision.is_float8 or wide.compilation is not None:
        return False
    return wide.regime.autocast is not None and wide.regime != narrow.regime


def _own(family: Family) -> Family | None:
    """The family as it computes where each rank has whole samples and a model of its own; None for stages, for another
    library's model, and where the node's RAM has its own rule."""
    if family.pipeline is not None or family.layout is not None or family.offload is not Offload.NONE:
        return None
    name = family.strategy.traits.untensored or family.strategy.name
    return Family(strategy=STRATEGIES[name], offload=Offload.NONE, checkpointing=family.checkpointing)


def _computing(evaluator: Judge, family: Family, micro_batch: int) -> tuple[float, ...]:
    """Seconds of a micro step that sends nothing, and of no update."""
    variant = evaluator.variant(family)
    key = (variant.key(), micro_batch)
    if key not in evaluator.kept_computing:
        trace = evaluator.provider.trace(variant, micro_batch)
        batch = Batch(micro_batch=micro_batch, accumulation_steps=1)
        time = evaluator.speed.step_time(evaluator.own_work(family, batch, trace, _NOTHING, ()), evaluator.cluster)
        evaluator.kept_computing[key] = (time.step_seconds, *(() if time.corners is None else time.corners()))
    return evaluator.kept_computing[key]
