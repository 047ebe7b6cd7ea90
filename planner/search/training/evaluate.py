"""Judges one candidate: memory of its worst rank against the device, and its expected speed."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, replace
from functools import cache
from typing import Any, Self

from gpu_plan.planner.context.rules import split_of
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.allocator.words import allocator_settings
from gpu_plan.planner.memory.evaluation import with_evaluation
from gpu_plan.planner.memory.overheads import NCCL_VERSION, Term, cuda_context, nccl
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.evaluator import BaseEvaluator
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.seconds.paces import paces_of
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.compilation import (
    compilation_notes,
    compilation_of,
    is_approximate,
    uncompiled_term,
)
from gpu_plan.planner.search.training.evaluation import evaluated
from gpu_plan.planner.search.training.megatron.judge import judge_megatron
from gpu_plan.planner.search.training.notes.checkpointing import (
    ON_HOST,
    checkpoint_every,
    checkpointing_notes,
    is_reentrant,
    reentrant_notes,
)
from gpu_plan.planner.search.training.notes.context import context_notes
from gpu_plan.planner.search.training.notes.liger import liger_notes
from gpu_plan.planner.search.training.notes.loader import loader_notes
from gpu_plan.planner.search.training.piped.judge import judge_pipeline
from gpu_plan.planner.search.training.piped.step import Kept, PipedFigures, PipedRank
from gpu_plan.planner.search.training.unlike.kinds import other_tensor_ranks
from gpu_plan.planner.search.training.whole import leaves_room
from gpu_plan.planner.search.training.widths.arithmetic import spared_beside_copies
from gpu_plan.planner.speed.in_step import collectives_of, computation_of, exchanges_of, host_copies_of, kept_on_host
from gpu_plan.planner.speed.model import Collective, Kernel, OptimizerWork, StepTime, StepWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan, kept_wide, loaded_in
from gpu_plan.planner.strategy.host_memory import (
    HostJob,
    HostWeights,
    certain,
    host_terms,
    host_weights,
    parameter_kinds,
)
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Checkpointing, Workload

_KERNELS: Mapping[str, Kernel] = {"flash": "flash", "cudnn": "cudnn", "flash1": "flash1", "flash3": "flash3"}
_OFFLOADING = 100
"""Moving parts of offloading: more than those of any strategy."""
_SHARING = 2
"""Moving parts of sharing out a sample's tokens: as many as tensor parallelism has more than what it stands beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJudgement(Judgement):
    """What one candidate takes and gives."""

    family: Family
    batch: Batch
    timed: Callable[[], StepTime] = field(compare=False, repr=False)
    """Works its time out, once."""
    spared: Callable[[], tuple[float, ...] | None] = field(compare=False, repr=False)
    """Works out what its engine's arithmetic spares beside whole copies, once: `widths.arithmetic`."""
    roomy: Callable[[], bool] = field(compare=False, repr=False)
    """Works out whether whole copies would leave room, once: `whole`."""
    planned: Callable[[], RankPlan] = field(compare=False, repr=False)
    """What the judged rank goes through; laid out anew of a candidate that another process judged."""
    sleeps: bool = False
    """Whether an engine beside its update sleeps meanwhile, which nobody asked for."""
    piped: PipedFigures | None = None
    """Every rank of a pipeline, of which `plan` is the worst; None without one."""

    @property
    def plan(self) -> RankPlan:
        """What the judged rank goes through."""
        return self.planned()

    @property
    def time(self) -> StepTime:
        """Of one optimizer step: of what memory rules out nobody asks it."""
        return self.timed()

    @property
    def title(self) -> str:
        return f"{self.family.title}, engine asleep" if self.sleeps else self.family.title

    @property
    def full_title(self) -> str:
        steps = self.batch.accumulation_steps
        words = f"{self.title}, micro batch {self.batch.micro_batch}" + (f" x {steps} steps" if steps > 1 else "")
        return f"{words}, {self.family.checkpointing_words}"

    @property
    def expected_seconds(self) -> float:
        return self.time.step_seconds / (self.time.samples_per_second * self.time.step_seconds)

    @property
    def seconds(self) -> tuple[float, ...]:
        samples = self.time.samples_per_second * self.time.step_seconds
        ends = () if self.time.corners is None else self.time.corners()
        return tuple(seconds / samples for seconds in (self.time.step_seconds, *ends))

    @property
    def compared_seconds(self) -> tuple[float, ...]:
        spared = self.spared()
        return tuple(one + more for one, more in zip(self.seconds, spared, strict=True)) if spared else self.seconds

    @property
    def compared_expected_seconds(self) -> float:
        spared = self.spared()
        return self.expected_seconds + spared[0] if spared else self.expected_seconds

    @property
    def needless(self) -> bool:
        spreads = bool(self.family.strategy.traits.stage) or self.family.copy_ranks > 1
        return spreads and not self.offloads and self.roomy()

    @property
    def schedule(self) -> Callable[[str], dict[str, Any]] | None:
        return self.time.trace

    @property
    def moving_parts(self) -> int:
        shared = _SHARING if self.family.context_parallel > 1 else 0
        return self.family.strategy.traits.moving_parts + shared + (_OFFLOADING if self.offloads else 0)

    @property
    def tuned(self) -> bool:
        selective = self.family.checkpointing is Checkpointing.SELECTIVE
        return bool(self.family.settings) or selective or self.sleeps

    @property
    def accumulates(self) -> bool:
        return self.family.batch is not None

    @property
    def staged(self) -> bool:
        family = self.family
        return family.pipeline is not None or (family.layout is not None and family.layout.pipeline > 1)

    @property
    def offloads(self) -> bool:
        return self.family.offload is not Offload.NONE

    @property
    def kept_host_bytes(self) -> int:
        return sum(term.expected for term in self.host_terms if term.name == "step")

    @property
    def needed_host_bytes(self) -> int:
        return certain(self.host_terms)

    @property
    def identity(self) -> tuple[Any, ...]:
        family, batch = self.family, self.batch
        degrees = (family.tensor_parallel, family.expert_parallel, family.context_parallel, family.replicas or 0)
        words = (family.title, str(family.offload), str(family.checkpointing))
        place = (family.strategy.traits.place, *degrees, *words)
        return (*place, family.settings, batch.micro_batch, batch.accumulation_steps)

    @property
    def stream(self) -> RankStream:
        return self.plan.stream

    @property
    def replayed(self) -> int:
        return self.batch.micro_batch

    @property
    def samples_per_second(self) -> float:
        return self.time.samples_per_second

    @property
    def notes(self) -> tuple[str, ...]:
        return self.plan.notes

    @property
    def failure_reason(self) -> str | None:
        return self.plan.failure_reason or None


@dataclass(slots=True, kw_only=True)
class Evaluator(BaseEvaluator[Workload]):
    """Evaluates candidates of one model, workload and cluster; streams are kept per family."""

    provider: Provider
    stored: frozenset[str] | None = None
    """dtypes in the model's checkpoint, where its headers were read."""
    config: Mapping[str, Any] | None = None
    """The model's, where it is named by one: degrees that nobody asked for are tried of such a model alone."""
    nccl_version: tuple[int, int] = NCCL_VERSION
    _plans: dict[tuple[object, ...], RankPlan] = field(default_factory=dict)
    _states: dict[tuple[object, ...], StepJudgement] = field(default_factory=dict)
    _standing: dict[tuple[object, ...], RankPlan] = field(default_factory=dict)
    """Of traces in which nothing happens."""
    _hosts: dict[tuple[object, ...], tuple[tuple[Term, ...], list[ParameterInfo]]] = field(default_factory=dict)
    _computations: dict[tuple[str, tuple[int, ...]], StepTrace] = field(default_factory=dict)
    _weights: dict[tuple[object, ...], tuple[HostWeights, list[ParameterInfo]]] = field(default_factory=dict)
    _outside: list[Term] = field(default_factory=list)
    kept_pipelines: Kept = field(default_factory=dict)
    kept_computing: dict[Any, tuple[float, ...]] = field(default_factory=dict)
    """Seconds of micro steps that do nothing but compute."""
    kept_rooms: dict[Any, bool] = field(default_factory=dict)
    """Whether whole copies leave room."""

    def of(self, workload: Workload, cluster: Cluster) -> Self:
        """What judges the same model in another job, or on other devices."""
        kept = [one for one in fields(self) if one.default_factory is not MISSING]
        fresh: dict[str, Any] = {one.name: one.default_factory() for one in kept if callable(one.default_factory)}
        return replace(
            self, workload=workload, cluster=cluster, host_limit=cluster.host_ram_bytes, evaluated=0, **fresh
        )

    def forget(self) -> None:
        """Lets go of all that was laid out and judged. Judgements name whoever judged them, which keeps them in its
        turn: garbage that is seldom collected."""
        for one in fields(self):
            if one.default_factory is dict:
                getattr(self, one.name).clear()

    @property
    def outside_terms(self) -> tuple[Term, ...]:
        """What every candidate takes outside the allocator."""
        if not self._outside:
            self._outside += [cuda_context(self.cluster), nccl(self.cluster, self.nccl_version)]
        return tuple(self._outside)

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays."""
        return StepVariant(
            regime=self._regime(family),
            checkpointing=family.checkpointing,
            attention=self.workload.attention,
            stack=self.workload.stack,
            seq_len=self.workload.seq_len,
            checkpoints_on_host=self._checkpoints_on_host(family),
            checkpoint_every=checkpoint_every(family.checkpointing, family.own(self.workload)),
            checkpoint_reentrant=is_reentrant(family, self.workload),
            fused=self.workload.fused,
            loss=self.workload.loss,
            padding=self.workload.setting("data.padding", "none"),
            compilation=compilation_of(self.workload, family.strategy.name),
            tensor_parallel=1 if family.layout else family.tensor_parallel,
            expert_parallel=1 if family.layout else family.expert_parallel,
            split=split_of(family.strategy.traits.context_parallel, family.context_parallel, self.workload),
        )

    def _checkpoints_on_host(self, family: Family) -> bool:
        """Whether the inputs of checkpointed layers wait in host memory, where the strategy's engine can."""
        asked = self.workload.setting(ON_HOST, "false") == "true" and ON_HOST in family.strategy.traits.settings
        return asked and family.checkpointing is Checkpointing.FULL

    def _regime(self, family: Family) -> Regime:
        regime = family.strategy.regime(self.workload.precision, self.workload.stack, self.workload.peft)
        if regime.float8 and self.workload.setting("fp8.backend", "torchao") == "te":
            return replace(regime, float8="te")
        if regime.float8 == "gathered" and self.workload.setting("fp8.all_gather", "true") == "false":
            return replace(regime, float8="cast")
        known, given = family.strategy.traits.settings, dict(self.workload.settings)
        if "quant.upcast" in known:
            regime = kept_wide(regime, given.get("quant.upcast"), self.workload.precision)
        return loaded_in(regime, given.get("dtype.params")) if "dtype.params" in known else regime

    def context(
        self, family: Family, accumulation_steps: int, trace: StepTrace, place: PipelineRank | None = None
    ) -> RankContext:
        """What the family's strategy is asked."""
        workload, cluster = self.workload, self.cluster
        return RankContext(
            trace=trace,
            precision=workload.precision,
            optimizer=workload.optimizer,
            stack=workload.stack,
            clipping=workload.clipping,
            checkpointing=family.checkpointing,
            accumulation_steps=accumulation_steps,
            world_size=cluster.world_size,
            capability=None if cluster.gpu.is_cpu else cluster.gpu.compute_capability,
            offload=family.offload,
            hidden_size=trace.layout.hidden_size,
            peft=workload.peft,
            replicate=self.replicas(family),
            nodes=cluster.nodes,
            tensor_parallel=family.tensor_parallel,
            expert_parallel=family.expert_parallel,
            context_parallel=family.context_parallel,
            pipeline=place,
            settings=family.own(workload).settings,
        )

    def replicas(self, family: Family) -> int:
        """Whole sharded copies of the model, 1 where the strategy has no such thing."""
        if not family.strategy.traits.replicates:
            return 1
        return family.replicas or self.workload.dp_replicate or self.cluster.nodes

    def judge(self, family: Family, batch: Batch) -> StepJudgement:
        """Evaluates one candidate exactly, and counts it."""
        self.evaluated += 1
        return self.judge_uncounted(family, batch)

    def judge_uncounted(self, family: Family, batch: Batch) -> StepJudgement:
        """The same for what is no candidate itself."""
        if family.pipeline is not None or family.layout is not None:
            return self._judge_pipeline(family, batch)
        trace = self.provider.trace(self.variant(family), batch.micro_batch)
        return self._judge(family, batch, trace)

    def judge_states(self, family: Family, batch: Batch) -> StepJudgement:
        """A lower bound without tracing: parameters, optimizer state and standing buffers alone."""
        key = (*_words(family), batch.micro_batch, batch.accumulation_steps)
        if key not in self._states:
            trace = self.provider.static_trace(self.variant(family).regime)
            self._states[key] = self._judge(family, batch, trace, states_only=True)
        return self._states[key]

    def _judge(self, family: Family, batch: Batch, trace: StepTrace, states_only: bool = False) -> StepJudgement:
        plan, profile = _worst(self._plan(family, batch, trace), batch.micro_batch)
        uncompiled = () if states_only else self._uncompiled(family, batch, profile)
        host_bytes = plan.host_bytes + kept_on_host(trace, batch.micro_batch)
        work = cache(lambda: self.work(family, batch, trace, plan))
        return StepJudgement(
            family=family,
            batch=batch,
            profile=profile,
            terms=(*self.outside_terms, *plan.outside, *uncompiled),
            host_bytes=host_bytes,
            nvme_bytes=plan.nvme_bytes,
            capacity_bytes=self.capacity_bytes,
            device_bytes=self.device_bytes,
            timed=cache(lambda: self.speed.step_time(work(), self.cluster)),
            paces=lambda: paces_of(self.speed, work(), self.cluster),
            spared=cache(lambda: spared_beside_copies(self, family, batch)),
            roomy=cache(lambda: leaves_room(self, family, batch)),
            planned=lambda: plan,
            allocator=self.allocator_of(family),
            shares_host=self.cluster.gpu.is_cpu,
            host_terms=self._host_terms(family, self.context(family, 1, trace), host_bytes),
            usual_host_bytes=self.usual_host_bytes,
            unknown_disk_bytes=self.unknown_disk_bytes(plan.nvme_bytes),
            states_only=states_only,
        )

    def allocator_of(self, family: Family) -> AllocatorSettings:
        """Settings of CUDA's caching allocator, those that the search gives the family among them."""
        return allocator_settings(dict(family.own(self.workload).settings))

    def _judge_pipeline(self, family: Family, batch: Batch) -> StepJudgement:
        judged = judge_pipeline if family.layout is None else judge_megatron
        step, time = judged(self, family, batch)
        worst = step.ranks[step.worst]
        return StepJudgement(
            family=family,
            batch=batch,
            profile=step.profiles[step.worst],
            terms=(*self.outside_terms, *worst.plan.outside),
            host_bytes=worst.plan.host_bytes,
            capacity_bytes=self.capacity_bytes,
            device_bytes=self.device_bytes,
            timed=lambda: time,
            spared=cache(lambda: spared_beside_copies(self, family, batch)),
            roomy=cache(lambda: leaves_room(self, family, batch)),
            planned=lambda: worst.plan,
            allocator=self.allocator_of(family),
            shares_host=self.cluster.gpu.is_cpu,
            host_terms=self._host_terms(family, worst.context, worst.plan.host_bytes),
            usual_host_bytes=self.usual_host_bytes,
            piped=step.told(),
        )

    def beside_others(self, family: Family, batch: Batch, one: PipedRank) -> PipedRank:
        """A rank of a pipeline with the job's other models: of one model alone there are none."""
        return one

    def work(self, family: Family, batch: Batch, trace: StepTrace, plan: RankPlan) -> StepWork:
        """What one rank does in a step."""
        return self.work_of(self.variant(family), family, batch, trace, plan)

    def work_of(self, variant: StepVariant, family: Family, batch: Batch, trace: StepTrace, plan: RankPlan) -> StepWork:
        """The same of any rank, whose step `trace` is of `variant`."""
        copies = host_copies_of(trace, batch.micro_batch)
        work = self.own_work(family, batch, trace, plan.optimizer_work, (*copies, *plan.collectives))
        split = variant.split
        if family.tensor_parallel == family.expert_parallel == 1 and split is None:
            return work
        key = (variant.key(), trace.samples)
        if key not in self._computations:
            self._computations[key] = computation_of(trace)
        if split is None:
            inside = collectives_of(trace, family.tensor_parallel, family.expert_parallel, batch.micro_batch)
        else:
            apart = split.degree > self.cluster.gpus_per_node
            inside = exchanges_of(trace, split, batch.micro_batch, across_nodes=apart)
        whole = replace(work, trace=self._computations[key], collectives=(*inside, *work.collectives))
        return whole if split is None else replace(whole, attention_share=split.attention_share)

    def own_work(
        self,
        family: Family,
        batch: Batch,
        trace: StepTrace,
        optimizer: OptimizerWork,
        collectives: tuple[Collective, ...],
    ) -> StepWork:
        """What a trace computes on the job's devices, with what stands around it."""
        return StepWork(
            trace=trace,
            micro_batch=batch.micro_batch,
            accumulation_steps=batch.accumulation_steps,
            compute_dtype=self.workload.precision.compute_dtype,
            collectives=collectives,
            optimizer=optimizer,
            data_parallel=self.cluster.world_size // family.copy_ranks,
            attention_kernel=_KERNELS.get(self.workload.setting("attention.kernel", "")),
            power_limit_watts=float(self.workload.setting("gpu.power_limit", "0")) or None,
            layers="torch" if family.layout is None else "megatron-core",
        )

    def _uncompiled(self, family: Family, batch: Batch, profile: MemoryProfile) -> tuple[Term, ...]:
        """How much higher the step may peak where Dynamo cuts its graphs."""
        if not is_approximate(self.workload, family.strategy.name):
            return ()
        written = self.provider.trace(replace(self.variant(family), compilation=None), batch.micro_batch)
        accumulation = min(batch.accumulation_steps, 2)
        stream = family.strategy.rank(self.context(family, accumulation, written)).stream
        peak = measure(stream, batch.micro_batch).peak_allocated_bytes
        return (uncompiled_term(peak - profile.peak_allocated_bytes),)

    def _host_terms(self, family: Family, context: RankContext, step_bytes: int) -> tuple[Term, ...]:
        """Once for all micro batches of a family: what is loaded, kept and saved does not depend on them."""
        key = (
            *_words(family),
            family.pipeline,
            family.layout,
            context.pipeline,
            id(context.trace.parameters),
            step_bytes,
        )
        if key not in self._hosts:
            # The parameters are kept beside: another list could have their id once they were gone.
            self._hosts[key] = self._made_host_terms(family, context, step_bytes), context.trace.parameters
        return self._hosts[key][0]

    def _made_host_terms(self, family: Family, context: RankContext, step_bytes: int) -> tuple[Term, ...]:
        parameters, counts = parameter_kinds(context.trace)
        job = HostJob(
            host=family.strategy.traits.host,
            parameters=parameters,
            counts=counts,
            regime=self._regime(family),
            mixed=self.workload.precision.is_mixed,
            peft=self.workload.peft,
            ranks=self.cluster.gpus_per_node,
            shards=context.shard_ranks,
            stored=self.stored,
            device_bytes=self.capacity_bytes,
            step_bytes=step_bytes,
        )
        alike = (job.host, job.regime, id(context.trace.parameters))
        if alike not in self._weights:
            self._weights[alike] = host_weights(job), context.trace.parameters
        terms = host_terms(job, self._weights[alike][0])
        # On a CPU the weights are what the device holds already.
        return tuple(term for term in terms if term.name == "step") if self.cluster.gpu.is_cpu else terms

    def evaluating(self, family: Family, plan: RankPlan) -> RankPlan:
        """The same rank, which evaluates between its steps where the job does."""
        asked = evaluated(self.workload, self.cluster.world_size // family.copy_ranks)
        if asked is None or not plan.stream.trace.num_tensors:
            return plan
        variant = replace(
            self.variant(family),
            checkpointing=Checkpointing.NONE,
            checkpoint_every=1,
            compilation=None,
            evaluation="logits" if asked.keeps else "loss",
        )
        trace = self.provider.trace(variant, asked.batch)
        stream = family.strategy.rank(self.context(family, 1, trace)).stream
        other_ranks = tuple(
            replace(other, stream=with_evaluation(other.stream, stream, asked)) for other in plan.other_ranks
        )
        return replace(plan, stream=with_evaluation(plan.stream, stream, asked), other_ranks=other_ranks)

    def _plan(self, family: Family, batch: Batch, trace: StepTrace) -> RankPlan:
        accumulation = min(batch.accumulation_steps, 2)
        key = (*_words(family), accumulation, trace.samples)
        if key not in self._plans:
            plan = self.evaluating(family, self._laid_out(family, accumulation, trace))
            others = (*plan.other_ranks, *other_tensor_ranks(self, family, batch, trace))
            own = family.own(self.workload)
            notes = (*checkpointing_notes(family.checkpointing, own), *liger_notes(self.workload))
            notes += reentrant_notes(family, own)
            notes += compilation_notes(self.workload, family.strategy.name)
            notes += context_notes(self.variant(family), self.cluster.gpus_per_node)
            notes += loader_notes(self.workload, self.cluster.world_size // family.copy_ranks)
            other_ranks = tuple(replace(other, notes=(*other.notes, *notes)) for other in others)
            self._plans[key] = replace(plan, notes=(*plan.notes, *notes), other_ranks=other_ranks)
        return self._plans[key]

    def _laid_out(self, family: Family, accumulation: int, trace: StepTrace) -> RankPlan:
        """What the strategy makes of a trace; of one in which nothing happens, which is the same however a step is
        checkpointed, once."""
        if trace.num_tensors:
            return family.strategy.rank(self.context(family, accumulation, trace))
        key = (*_words(replace(family, checkpointing=Checkpointing.NONE)), accumulation, id(trace))
        if key not in self._standing:
            self._standing[key] = family.strategy.rank(self.context(family, accumulation, trace))
        return self._standing[key]


def _words(family: Family) -> tuple[object, ...]:
    """What tells the streams of families apart whose model is not cut into stages: the allocator's settings do not."""
    degrees = (family.tensor_parallel, family.expert_parallel, family.context_parallel, family.replicas or 0)
    settings = (one for one in family.settings if not one[0].startswith("alloc."))
    return (family.strategy.name, str(family.offload), str(family.checkpointing), *degrees, *settings)


def _worst(plan: RankPlan, micro_batch: int) -> tuple[RankPlan, MemoryProfile]:
    """The rank that peaks highest at this micro batch; the plan's own where they are equal."""
    measured = [(rank, measure(rank.stream, micro_batch)) for rank in (plan, *plan.other_ranks)]
    return max(measured, key=lambda item: item[1].peak_allocated_bytes)
