"""What the search tries: combinations of strategy, offload, checkpointing and batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.training.degrees import spreads
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.known import unsharded, with_degree
from gpu_plan.planner.strategy.megatron.layouts import layouts
from gpu_plan.planner.strategy.pipeline.cuts import STEPS_PER_STAGE, Pipeline, pipelines
from gpu_plan.planner.strategy.registry import STRATEGIES, find_strategy
from gpu_plan.planner.strategy.traits import ENGINE_TITLES, Offload, Traits
from gpu_plan.planner.workload.training import Checkpointing, Workload

LARGEST_MICRO_BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How the global batch is cut."""

    micro_batch: int
    accumulation_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Everything but the batch: one stream serves every micro batch of a family."""

    strategy: Strategy
    offload: Offload
    checkpointing: Checkpointing
    tensor_parallel: int = 1
    """Ranks that compute one copy of the model together."""
    expert_parallel: int = 1
    """Ranks that hold whole experts each."""
    context_parallel: int = 1
    """Ranks that share the tokens of every sample."""
    replicas: int | None = None
    """Whole sharded copies, where another number than `--dp-replicate` or one on each node is tried."""
    layout: Layout | None = None
    """How a library's own model is shared out; None: the user's class runs."""
    pipeline: Pipeline | None = None
    """How the model is cut into stages; None: it is not."""
    settings: tuple[tuple[str, str], ...] = ()
    """`--set` keys that the search gives it, where the user left them open."""
    batch: Batch | None = None
    """The only cut that is tried; None: all of the job's."""
    from_size: int = 1
    """The smallest micro batch that is tried."""

    def own(self, workload: Workload) -> Workload:
        """The job with the family's own settings."""
        return replace(workload, settings=(*workload.settings, *self.settings)) if self.settings else workload

    @property
    def copy_ranks(self) -> int:
        """Ranks that compute the same samples, however they share the model or the samples' tokens."""
        if self.layout is not None:
            return self.layout.copy_ranks
        return self.tensor_parallel * self.context_parallel * (1 if self.pipeline is None else self.pipeline.degree)

    @property
    def title(self) -> str:
        """`ZeRO-2 with optimizer offload`, `FSDP2 × TP 4`, `HSDP of 2 replicas`, `pipeline PP 4 (1f1b)`."""
        title = self.strategy.title
        if self.layout is not None:
            return f"{title} {self.layout.words}".rstrip()
        if self.pipeline is not None:
            if self.tensor_parallel > 1:
                title = with_degree(title, "TP", self.tensor_parallel)
            return f"{with_degree(title, 'PP', self.pipeline.degree)} ({self.pipeline.words})"
        if self.tensor_parallel > 1:
            title = with_degree(title, "TP", self.tensor_parallel)
        if self.expert_parallel > 1:
            title = with_degree(title, "EP", self.expert_parallel)
        if self.context_parallel > 1:
            title = with_degree(title, "CP", self.context_parallel)
        if self.replicas is not None:
            title = f"{title} of {self.replicas} replicas"
        if ("fsdp.reshard_after_forward", "false") in self.settings:
            title += " without resharding"
        if ("alloc.expandable_segments", "true") in self.settings:
            title += " with expandable segments"
        if self.offload is Offload.NONE:
            return title
        words = {Offload.ALL: "full offload", Offload.NVME: "NVMe offload"}
        return f"{title} with {words.get(self.offload, f'{self.offload} offload')}"

    @property
    def checkpointing_words(self) -> str:
        """`no checkpointing`, `full checkpointing of one layer in 2`."""
        words = f"{'no' if self.checkpointing is Checkpointing.NONE else self.checkpointing} checkpointing"
        every = dict(self.settings).get("checkpoint.every")
        return words if every is None else f"{words} of one layer in {every}"


def families(workload: Workload, cluster: Cluster, can_checkpoint: bool) -> Iterator[Family]:
    """Families to try, simplest first; what the user gave is not searched.

    UsageError when checkpointing is asked of a model that does not support it.
    """
    for strategy in _strategies(workload, cluster):
        if strategy.traits.own_model:
            _offloads(workload, cluster, strategy)  # UsageError for one that it does not have
            for checkpointing in _checkpointing(workload, True):
                for layout in layouts(workload, cluster, checkpointing):
                    yield Family(
                        strategy=strategy,
                        offload=Offload.NONE,
                        checkpointing=checkpointing,
                        tensor_parallel=layout.tensor,
                        expert_parallel=layout.expert,
                        context_parallel=layout.context,
                        layout=layout,
                    )
            continue
        for pipeline in pipelines(strategy.traits, workload, cluster):
            for offload in _offloads(workload, cluster, strategy):
                for checkpointing in _checkpointing(workload, can_checkpoint):
                    yield Family(
                        strategy=strategy,
                        offload=offload,
                        checkpointing=checkpointing,
                        pipeline=pipeline,
                        tensor_parallel=(workload.tensor_parallel or 1) if strategy.traits.tensor_parallel else 1,
                    )
        if strategy.traits.pipeline_parallel:
            continue
        for spread in spreads(strategy.traits, workload, cluster):
            for offload in _offloads(workload, cluster, strategy):
                for checkpointing in _checkpointing(workload, can_checkpoint):
                    yield Family(
                        strategy=strategy,
                        offload=offload,
                        checkpointing=checkpointing,
                        tensor_parallel=spread.tensor,
                        expert_parallel=spread.experts,
                        context_parallel=spread.context,
                        replicas=spread.replicas,
                    )


def _strategies(workload: Workload, cluster: Cluster) -> list[Strategy]:
    if workload.strategy is not None:
        return [find_strategy(workload.strategy)]
    together = (workload.tensor_parallel or 1) > 1
    if (workload.pipeline_parallel or 1) > 1:
        staged = [strategy for strategy in STRATEGIES.values() if strategy.traits.pipeline_parallel]
        return [strategy for strategy in staged if bool(strategy.traits.tensor_parallel) == together]
    if (workload.context_parallel or 1) > 1:
        able = [strategy for strategy in STRATEGIES.values() if strategy.traits.context_parallel]
        return [s for s in able if _tried(s.traits, workload, cluster) and _of_stack(s.traits, workload)]
    if together or (workload.expert_parallel or 1) > 1:
        alone = [strategy for strategy in STRATEGIES.values() if not strategy.traits.pipeline_parallel]
        asked = [strategy for strategy in alone if bool(strategy.traits.tensor_parallel) == together]
        apart = (workload.expert_parallel or 1) > 1
        return [strategy for strategy in asked if strategy.traits.expert_parallel or not apart]
    if cluster.gpu.is_cpu:
        # Accelerate runs neither FSDP nor DeepSpeed on CPU processes without patches: only what was asked for.
        return [STRATEGIES[unsharded(cluster.world_size).name]]
    return [s for s in STRATEGIES.values() if _tried(s.traits, workload, cluster) and _of_stack(s.traits, workload)]


def _of_stack(traits: Traits, workload: Workload) -> bool:
    """Whether the stack runs a strategy at all."""
    stack = workload.stack.traits
    if workload.peft.quantises and not stack.shards_packed and not traits.one_device:
        return False
    return not stack.strategies or traits.name in stack.strategies


def _tried(traits: Traits, workload: Workload, cluster: Cluster) -> bool:
    """Whether the search tries a strategy that nobody asked for."""
    if traits.tensor_parallel and (workload.tensor_parallel == 1 or traits.pipeline_parallel):
        return False
    if traits.expert_parallel == "must" and workload.expert_parallel == 1:
        return False
    if traits.pipeline_parallel and (workload.pipeline_parallel == 1 or workload.peft.adapts):
        return False
    if cluster.world_size == 1:
        return bool(traits.searched.alone)
    return traits.searched.over == "devices" or (traits.searched.over == "nodes" and cluster.nodes > 1)


def _offloads(workload: Workload, cluster: Cluster, strategy: Strategy) -> list[Offload]:
    searched_alone = cluster.world_size == 1 and not cluster.gpu.is_cpu and workload.strategy is None
    known = strategy.traits.searched.alone if searched_alone else strategy.offloads
    if workload.offload is None:
        # A CPU rank's device is the host: moving things there saves nothing.
        # Whether nodes have a fast disk is not known: swap files are tried when they are asked for.
        return [Offload.NONE] if cluster.gpu.is_cpu else [kind for kind in known if kind is not Offload.NVME]
    wanted = Offload(workload.offload)
    if wanted is not Offload.NONE and cluster.gpu.is_cpu and workload.strategy is None:
        raise UsageError(
            f"--offload {wanted} moves nothing on CPU processes, whose device is the host: leave it out, or name a"
            " --strategy to try it with"
        )
    if wanted is not Offload.NONE and cluster.gpu.is_cpu and (why := strategy.traits.fails_offloaded_on_cpu):
        raise UsageError(f"--offload {wanted}: {strategy.title} trains wrongly with it on CPU processes: {why}")
    if wanted in known:
        return [wanted]
    if workload.strategy is not None:
        able = [other.traits for other in STRATEGIES.values() if wanted in other.offloads]
        names = ", ".join(traits.name for traits in able)
        raise UsageError(f"--offload {wanted} needs {_together(able)} ({names}): {strategy.name} does not have it")
    return []


def _together(able: Sequence[Traits]) -> str:
    """What strategies are called together: by their only one, by their engine, or not at all."""
    if len(able) == 1:
        return able[0].title
    engines = {traits.engine for traits in able}
    return ENGINE_TITLES[engines.pop()] if len(engines) == 1 else "another --strategy"


def _checkpointing(workload: Workload, can_checkpoint: bool) -> list[Checkpointing]:
    if workload.checkpointing not in (None, Checkpointing.NONE) and not can_checkpoint:
        raise UsageError(f"--checkpointing {workload.checkpointing}: this model does not support checkpointing")
    if workload.checkpointing is not None:
        return [workload.checkpointing]
    # Selective is tried when it is asked for: it takes a trace of its own.
    return [Checkpointing.NONE, Checkpointing.FULL] if can_checkpoint else [Checkpointing.NONE]


def batches(workload: Workload, data_parallel: int, stages: int = 1) -> list[Batch]:
    """Cuts to try, smallest micro batch first.

    With a global batch, micro batch × data-parallel size × accumulation steps equals it; UsageError when it does
    not divide. Without one there is no accumulation unless it was given, or there are `stages` of a pipeline to fill.
    """
    if workload.global_batch is None:
        steps = workload.grad_accum or (1 if stages == 1 else STEPS_PER_STAGE * stages)
        sizes = [workload.micro_batch] if workload.micro_batch else _powers_of_two()
        return [Batch(micro_batch=size, accumulation_steps=steps) for size in sizes]
    return _cut(workload, workload.global_batch, data_parallel)


def first_batches(
    workload: Workload, world_size: int, shared: int, stages: int, others: Callable[[], Iterable[int]]
) -> list[Batch]:
    """As `batches`, of copies that `shared` ranks compute each.

    Where a step has fewer samples than there are devices, a whole number of devices for each, or where an engine's own
    model is shared out by degrees that are searched: those of the fewest ranks that divide the global batch. `others`
    gives how many ranks share a copy by those degrees. UsageError where none does.
    """
    try:
        return batches(workload, world_size // shared, stages)
    except UsageError:
        own = workload.strategy is not None and find_strategy(workload.strategy).traits.own_model
        if not own and (workload.global_batch is None or world_size % workload.global_batch):
            raise
        for ranks in sorted(set(others())):
            if ranks > shared and world_size % ranks == 0 and divides(workload, world_size // ranks):
                return batches(workload, world_size // ranks, stages)
        raise


def sharing(workload: Workload) -> int:
    """Ranks that compute the same samples, as far as degrees were given."""
    return (workload.tensor_parallel or 1) * (workload.context_parallel or 1) * (workload.pipeline_parallel or 1)


def divides(workload: Workload, data_parallel: int) -> bool:
    """Whether so many copies of the model share a step's samples evenly, in micro batches as they were asked for."""
    try:
        batches(workload, data_parallel)
    except UsageError:
        return False
    return True


def _cut(workload: Workload, global_batch: int, data_parallel: int) -> list[Batch]:
    share, rest = divmod(global_batch, data_parallel)
    if rest or share == 0:
        below = max(data_parallel, global_batch - global_batch % data_parallel)
        raise UsageError(
            f"--global-batch {global_batch} does not divide over {data_parallel} data-parallel ranks: "
            f"use {below} or {below + data_parallel}"
        )
    found = [
        Batch(micro_batch=size, accumulation_steps=share // size)
        for size in range(1, min(share, LARGEST_MICRO_BATCH) + 1)
        if share % size == 0 and workload.micro_batch in (None, size) and workload.grad_accum in (None, share // size)
    ]
    if not found:
        asked = " and ".join(
            f"--{name} {value}"
            for name, value in (("micro-batch", workload.micro_batch), ("grad-accum", workload.grad_accum))
            if value is not None
        )
        raise UsageError(
            f"--global-batch {global_batch} over {data_parallel} ranks is {share} samples a rank: "
            f"{asked} does not divide that"
        )
    return found


def _powers_of_two() -> list[int]:
    sizes, size = [], 1
    while size <= LARGEST_MICRO_BATCH:
        sizes.append(size)
        size *= 2
    return sizes
