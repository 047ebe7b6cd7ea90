"""The job that the options describe: defaults filled in, every origin noted."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.adapter import DEFAULT_RANK
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.checks import check_workload
from gpu_plan.planner.options.degrees.context import check_ranks, check_split, pinned_context
from gpu_plan.planner.options.degrees.megatron import check_product, runs_own_model
from gpu_plan.planner.options.degrees.pipeline import (
    check_stages,
    pinned_pipeline,
    with_even_stages,
)
from gpu_plan.planner.options.training.contradictions import check_every, check_pinned_memory, check_strategy_settings
from gpu_plan.planner.options.training.defaults import (
    clips,
    fused_loss,
    loss_of,
    optimizer_of,
    precision_of,
    schedule_of,
    seq_len_of,
)
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.known import (
    expert_parallel,
    replicating,
    tensor_parallel,
    traits_of,
    unsharded,
)
from gpu_plan.planner.strategy.traits import Offload, Traits
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.settled import Basis
from gpu_plan.planner.workload.training import (
    Attention,
    Checkpointing,
    Stack,
    Workload,
)


def make_workload(given: Given, pinned: bool, cluster: Cluster, spec: ModelSpec) -> Workload:
    """The job that the options describe, defaults filled in."""
    own = runs_own_model(given.strategy)
    _check_product(given, cluster)
    searched = _pinned(given, cluster) if pinned else _searched(given)
    norm = dict(given.settings).get("clip.max_norm")
    workload = Workload(
        seq_len=seq_len_of(given, spec),
        precision=precision_of(given, cluster),
        optimizer=given.optimizer or optimizer_of(given.stack),
        attention=given.attention or Attention.SDPA,
        stack=given.stack or Stack.ACCELERATE,
        clipping=clips(given.stack) if norm is None else float(norm) > 0,
        max_grad_norm=None if norm is None else float(norm),
        micro_batch=searched.micro_batch,
        global_batch=given.global_batch,
        grad_accum=given.grad_accum,
        checkpointing=searched.checkpointing,
        strategy=searched.strategy,
        offload=None if searched.offload is None else str(searched.offload),
        dp_replicate=searched.replicas,
        tensor_parallel=1 if own and pinned and given.tensor_parallel is None else given.tensor_parallel,
        expert_parallel=1 if own and pinned and given.expert_parallel is None else given.expert_parallel,
        context_parallel=1 if pinned and given.context_parallel is None else given.context_parallel,
        pipeline_parallel=1 if own and pinned and given.pipeline_parallel is None else given.pipeline_parallel,
        schedule=schedule_of(given, pinned),
        virtual_stages=given.virtual_stages,
        peft=given.peft or NO_ADAPTERS,
        lora_rank=(given.lora_rank or DEFAULT_RANK) if spec.adapted else None,
        lora_targets=spec.adapted or None,
        fused_loss=fused_loss(given),
        loss=loss_of(given, spec),
        settings=with_even_stages(given.settings, given.pipeline_parallel) if pinned and not own else given.settings,
    )
    check_workload(workload, cluster, spec)
    if not own:
        check_split(workload)
    return workload.with_basis(**_basis(given, pinned))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """What a search is free to choose; None where it is."""

    strategy: str | None
    offload: Offload | None
    checkpointing: Checkpointing | None
    micro_batch: int | None
    replicas: int | None


def _check_product(given: Given, cluster: Cluster) -> None:
    """UsageError where the degrees do not share out the GPUs."""
    if runs_own_model(given.strategy):
        check_product(given.tensor_parallel, given.pipeline_parallel, given.context_parallel, cluster)
    check_stages(given.pipeline_parallel, given.strategy, cluster, given.tensor_parallel)
    check_ranks(given.context_parallel, given.dp_replicate, cluster)
    replicas, degree, experts = given.dp_replicate or 1, given.tensor_parallel or 1, given.expert_parallel or 1
    if cluster.world_size % replicas:
        raise UsageError(f"--dp-replicate {replicas} does not divide {cluster.world_size} GPUs")
    if cluster.world_size % degree:
        raise UsageError(f"--tp {degree} does not divide {cluster.world_size} GPUs")
    traits = None if given.strategy is None else traits_of(given.strategy)
    alone = traits is not None and traits.tensor_parallel == "all" and not traits.pipeline_parallel
    if alone and degree not in (1, cluster.world_size):
        raise UsageError(
            f"--strategy {given.strategy} computes one copy over all {cluster.world_size} GPUs: --tp"
            f" {cluster.world_size}, or leave --strategy out, and the copies' parts are shared out over the groups"
        )
    if cluster.world_size // replicas % experts:
        among = f" over {replicas} replicas" if replicas > 1 else ""
        raise UsageError(f"--ep {experts} does not divide {cluster.world_size} GPUs{among}")
    if cluster.world_size % (replicas * degree):
        words = f"--dp-replicate {replicas} x --tp {degree}"
        raise UsageError(f"{words} does not divide {cluster.world_size} GPUs: their product has to")


def _searched(given: Given) -> _Searched:
    """As given."""
    return _Searched(
        strategy=_replicating(given),
        offload=given.offload,
        checkpointing=given.checkpointing,
        micro_batch=given.micro_batch,
        replicas=given.dp_replicate,
    )


def _replicating(given: Given) -> str | None:
    """The strategy given, or the one that replicas ask for."""
    if given.strategy is None and given.dp_replicate not in (None, 1):
        return next(traits.name for traits in replicating() if _is_meant(traits, given))
    return given.strategy


def _pinned(given: Given, cluster: Cluster) -> _Searched:
    """As given, with the neutral value of each that was not."""
    strategy = _pinned_strategy(given, cluster)
    checkpointing, offload = given.checkpointing or Checkpointing.NONE, given.offload or Offload.NONE
    replicas = given.dp_replicate
    if replicas is None and traits_of(strategy).replicates and cluster.nodes > 1:
        replicas = cluster.nodes
    # What is pinned is known only here.
    check_every(checkpointing, given.settings, given.stack)
    check_strategy_settings(strategy, given.settings)
    check_pinned_memory(offload, given.settings)
    return _Searched(
        strategy=strategy,
        offload=offload,
        checkpointing=checkpointing,
        micro_batch=given.micro_batch or (None if given.global_batch else 1),
        replicas=replicas,
    )


def _pinned_strategy(given: Given, cluster: Cluster) -> str:
    """The strategy given, or the plainest one of the degrees."""
    strategy = pinned_pipeline(given.pipeline_parallel, _replicating(given), cluster, given.tensor_parallel)
    strategy = pinned_context(given.context_parallel, strategy)
    if strategy is not None:
        return strategy
    degree, experts = given.tensor_parallel or 1, given.expert_parallel or 1
    if degree > 1:
        over = "all" if degree == cluster.world_size else "some"
        return next(traits.name for traits in tensor_parallel() if traits.tensor_parallel == over)
    if experts > 1:
        return next(traits.name for traits in expert_parallel() if traits.expert_parallel == "must")
    return unsharded(cluster.world_size).name


def _is_meant(traits: Traits, given: Given) -> bool:
    """Whether a strategy with replicas is the one of the degrees that were given."""
    together, apart = (given.tensor_parallel or 1) > 1, (given.expert_parallel or 1) > 1
    return bool(traits.tensor_parallel) == together and (traits.expert_parallel == "must") == (apart and not together)


def _basis(given: Given, pinned: bool) -> dict[str, Basis]:
    """Where each value came from."""
    fixed = (
        "precision", "optimizer", "attention", "stack", "seq_len", "peft", "lora_rank", "lora_targets", "fused_loss",
    )  # fmt: skip
    searched = ("strategy", "offload", "checkpointing", "micro_batch", "grad_accum", "global_batch")
    otherwise: dict[str, Basis] = dict.fromkeys(fixed, "default")
    otherwise.update(dict.fromkeys(searched, "default" if pinned else "searched"))
    found: dict[str, Basis] = {
        name: basis if getattr(given, name) is None else "given" for name, basis in otherwise.items()
    }
    clipped: Basis = "given" if "clip.max_norm" in dict(given.settings) else "default"
    return {**found, "clipping": clipped, "max_grad_norm": clipped}
