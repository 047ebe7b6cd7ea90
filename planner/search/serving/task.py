"""Serving, as the search sees a task: a family is a layout, and each has one size."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.overheads import Term, cuda_context, nccl
from gpu_plan.planner.memory.profile import MemoryProfile, PeakDetails, known
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.figures import HostFigures, SpeedFigures, StrategyChoice
from gpu_plan.planner.plan.serving import ServingFigures
from gpu_plan.planner.search.evaluator import BaseEvaluator
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.reasons import failure
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.serving.judgement import ServingJudgement
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.serving.known import find_server
from gpu_plan.planner.serving.layers import layer_caches
from gpu_plan.planner.serving.memory import EngineMemory, EngineOptions
from gpu_plan.planner.serving.profile import sizes_of
from gpu_plan.planner.serving.server import Asked, Server
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.speed.rates import Rate, memory_rate
from gpu_plan.planner.strategy.generation.layout import Layout, whole
from gpu_plan.planner.trace.events import CATEGORIES, Category
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.generation import CacheType
from gpu_plan.planner.workload.serving import ServeWorkload

_MOST_RANKS = 16


@dataclass(slots=True, kw_only=True)
class ServingEvaluator(BaseEvaluator[ServeWorkload]):
    """Judges ways to serve one model; `config` is its decoder's, with its class's defaults."""

    spec: ModelSpec
    config: Mapping[str, Any]
    element_bytes: int

    @property
    def server(self) -> Server:
        """The engine whose rules are asked."""
        return find_server(self.workload.server)

    def judge(self, layout: Layout, *, context: int | None = None) -> ServingJudgement:
        """One rank of one replica."""
        workload, cluster = self.workload, self.cluster
        engine = self.engine(layout, context or workload.context)
        terms = (cuda_context(cluster), self._nccl(layout), _filled(engine.graphs), _filled(engine.outside))
        return ServingJudgement(
            layout=layout,
            engine=engine,
            concurrency=workload.concurrency,
            bandwidth=memory_rate(cluster.gpu),
            exchange=self._exchange(layout),
            baseline=terms[0].expected + terms[1].expected,
            profile=_profile(engine),
            terms=terms,
            host_bytes=0,
            capacity_bytes=self.capacity_bytes,
            kept_free=workload.reserve_bytes,
        )

    def _exchange(self, layout: Layout) -> Rate:
        """Of a step's all-reduces: one behind each layer's attention, one behind its MLP (RowParallelLinear)."""
        asked = ceil_div(self.workload.concurrency, layout.data_parallel)
        hidden = sizes_of(self.config).hidden
        layers = len(layer_caches(self.config, layout.tensor_parallel, 1))
        call = Collective(
            kind="all_reduce",
            bytes=asked * hidden * self.element_bytes,
            phase="forward",
            per="step",
            overlap=False,
            ranks=layout.tensor_parallel,
        )
        return call_seconds(call, self.cluster).times(2 * layers)

    def engine(self, layout: Layout, context: int) -> EngineMemory:
        """The engine's memory at a context."""
        workload = self.workload
        cache = {CacheType.AUTO: self.element_bytes, CacheType.FP8: 1, CacheType.FP32: 4}
        before = (cuda_context(self.cluster), self._nccl(layout))
        options = EngineOptions(
            max_model_len=context,
            taken=(
                sum(one.low for one in before),
                sum(one.expected for one in before),
                sum(one.high for one in before),
            ),
            utilization=workload.utilization,
            tensor_parallel=layout.tensor_parallel,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_num_seqs=workload.max_num_seqs,
            # A replica that must hold more sequences than the engine computes by default is told to.
            least_seqs=ceil_div(workload.concurrency, layout.data_parallel),
            eager=workload.enforce_eager,
            multimodal=self.spec.kind == "multimodal",
            element_bytes=self.element_bytes,
            cache_bytes=cache.get(workload.kv_dtype, 2),
        )
        return self.server.memory(self.spec, self.config, self.cluster.gpu, self.cluster.capacity_bytes, options)

    def _nccl(self, layout: Layout) -> Term:
        if layout.ranks > 1:
            return nccl(self.cluster)
        return Term(name="NCCL", low=0, expected=0, high=0, basis="source", source="one process a replica")


def _filled(term: Term) -> Term:
    """A term that is known within bounds: the cache takes what it leaves, and the device is as full."""
    return replace(term, low=term.expected, high=term.expected)


def _profile(engine: EngineMemory) -> MemoryProfile:
    """What torch holds while the largest batch runs, the cache full."""
    at_peak = dict.fromkeys(CATEGORIES, 0)
    at_peak[Category.PARAMETERS] = engine.weights.parameters + engine.weights.copies
    at_peak[Category.BUFFERS] = engine.weights.rotary + engine.run.buffers + engine.run.workspace
    at_peak[Category.KV_CACHE] = engine.cache_bytes
    at_peak[Category.ACTIVATIONS] = engine.run.transient
    rest = engine.held + engine.cache_bytes
    whole = rest + engine.run.transient
    details = PeakDetails(
        phase_of_peak=Phase.PREFILL,
        at_peak=at_peak,
        at_rest_bytes=rest,
        phase_peaks={Phase.LOAD: engine.weights.nbytes, Phase.PREFILL: whole},
    )
    return known(whole, details)


@dataclass(frozen=True, slots=True)
class ServingTask:
    """Ways to serve one model."""

    evaluator: ServingEvaluator
    model: str = ""
    """As the server's command line names it."""

    def families(self) -> Iterator[Layout]:
        """The plainest first. UsageError where the options leave none."""
        wanted = self._layouts()
        if not wanted:
            raise UsageError(f"--strategy {self._workload.strategy} needs a degree: add --vllm-tp 2 or more")
        return iter(wanted)

    def finer(
        self,
        ranking: Ranking,
        plans: Sequence[ServingJudgement],
        rejected: Sequence[Rejected[ServingJudgement]] = (),
        others: Sequence[ServingJudgement] = (),
    ) -> Iterator[Layout]:
        """None: the layouts are all that there is."""
        return iter(())

    def _layouts(self) -> list[Layout]:
        workload, world = self._workload, self._cluster.world_size
        given = workload.tensor_parallel
        degrees = (1, 2, 4, 8, 16) if given is None else (given,)
        found = [
            Layout(name="tp", tensor_parallel=degree, data_parallel=world // degree) if degree > 1 else whole(world)
            for degree in degrees
            if (world % degree == 0 and degree <= min(_MOST_RANKS, self._cluster.gpus_per_node)) or degree == given
        ]
        if workload.strategy == "tp":
            return [layout for layout in found if layout.tensor_parallel > 1]
        return [layout for layout in found if workload.strategy is None or layout.tensor_parallel == 1]

    def name(self, family: Layout) -> str:
        """The layout's title."""
        return family.title

    def words_of(self, family: Layout) -> str:
        """The layout's title."""
        return family.title

    def hopeless(self, family: Layout, ranking: Ranking, plans: Sequence[ServingJudgement]) -> str | None:
        """Every layout is computed in no time."""
        return None

    def refusal(self, family: Layout) -> str | None:
        """What the engine cannot split."""
        return self.evaluator.server.refusal(self.evaluator.config, family.tensor_parallel)

    def by_states(self, family: Layout) -> ServingJudgement | None:
        """Every layout is computed in no time."""
        return None

    def explore(self, family: Layout, *, exhaustive: bool) -> Explored[ServingJudgement]:
        """The layout, judged."""
        judgement = self.evaluator.judge(family)
        reason = failure(self.evaluator, judgement)
        if reason is not None:
            return Explored(rejected=Rejected(judgement=judgement, reason=reason))
        return Explored(best=judgement)

    def smaller(self) -> Iterator[tuple[str, "ServingTask"]]:
        """Options that the user fixed, with less asked."""
        workload = self._workload
        if workload.kv_dtype is CacheType.AUTO:
            yield "--kv-dtype fp8", self._with(replace(workload, kv_dtype=CacheType.FP8), self._cluster)
        if workload.tensor_parallel is not None:
            free = replace(workload, tensor_parallel=None, strategy=None)
            yield "another --vllm-tp", self._with(free, self._cluster)
        held = self._held()
        if 0 < held < workload.concurrency:
            yield f"--concurrency {held}", self._with(replace(workload, concurrency=held), self._cluster)
        if (workload.utilization or 1.0) < 0.95:
            yield "--gpu-memory-utilization 0.95", self._with(replace(workload, utilization=0.95), self._cluster)
        context = workload.context
        while context >= 1024:
            context //= 2
            yield f"--context {context}", self._with(replace(workload, context=context), self._cluster)

    def _held(self) -> int:
        """Requests of full context that the best layout surely holds."""
        judged = [self.evaluator.judge(layout) for layout in self._layouts() if self.refusal(layout) is None]
        surely = [(one.engine.concurrency(one.engine.least_available), one.layout.data_parallel) for one in judged]
        return max((int(each) * replicas for each, replicas in surely), default=0)

    def on(self, cluster: Cluster) -> "ServingTask":
        """The same server on other devices, its layout searched."""
        return self._with(replace(self._workload, strategy=None, tensor_parallel=None), cluster)

    def footprints(self) -> frozenset[object]:
        """Replicas share the requests: every further one changes what each must hold."""
        return frozenset((layout.tensor_parallel, layout.data_parallel) for layout in self._layouts())

    def fitting(self) -> ServingJudgement | None:
        """The best that fits."""
        return search(self).best

    def words(self, judgement: ServingJudgement) -> str:
        """The layout's title."""
        return judgement.title

    def choice(self, judgement: ServingJudgement) -> StrategyChoice:
        """Layout and degrees; the batch is what a replica is asked to hold."""
        return StrategyChoice(
            name=judgement.layout.name,
            data_parallel=judgement.layout.data_parallel,
            tensor_parallel=judgement.layout.tensor_parallel,
            micro_batch_size=judgement.asked,
            precision=str(self._workload.precision),
        )

    def speed(self, judgement: ServingJudgement) -> SpeedFigures:
        """One token of every asked request: what reading weights and cache takes, and no more."""
        fast, expected, slow = judgement.step_bounds
        devices = self._cluster.world_size
        return SpeedFigures(
            step_seconds=expected,
            step_seconds_low=fast,
            step_seconds_high=slow,
            tokens_per_second_per_gpu=judgement.samples_per_second / devices,
            samples_per_second=judgement.samples_per_second,
            mfu=None,
            basis="assumed",
            parts={
                "memory": judgement.step_bytes[1] / judgement.bandwidth.expected,
                "communication": judgement.exchange.expected,
            },
        )

    def host(self, judgement: ServingJudgement) -> HostFigures | None:
        """Nothing is offloaded."""
        return None

    def details(self, judgement: ServingJudgement, *, lost: bool, best: bool) -> Details:
        """The server's own figures; of the best, what starts it."""
        return Details(
            command=self._command(judgement) if best else None,
            serving=_figures(judgement, self.evaluator.server, self._most(judgement)),
        )

    def _most(self, judgement: ServingJudgement) -> int:
        positions = self.evaluator.spec.max_positions or judgement.engine.max_model_len
        return judgement.engine.longest(positions, judgement.asked)

    def _command(self, judgement: ServingJudgement) -> str:
        workload, layout = self._workload, judgement.layout
        asked = Asked(
            model=self.model,
            memory=judgement.engine,
            tensor_parallel=layout.tensor_parallel,
            data_parallel=layout.data_parallel,
            requests=judgement.asked,
            utilization=workload.utilization,
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            fp8_cache=workload.kv_dtype is CacheType.FP8,
            eager=workload.enforce_eager,
        )
        return shlex.join(self.evaluator.server.command(asked))

    @property
    def _workload(self) -> ServeWorkload:
        return self.evaluator.workload

    @property
    def _cluster(self) -> Cluster:
        return self.evaluator.cluster

    def _with(self, workload: ServeWorkload, cluster: Cluster) -> "ServingTask":
        return ServingTask(replace(self.evaluator, workload=workload, cluster=cluster), self.model)


def _figures(judgement: ServingJudgement, server: Server, longest: int) -> ServingFigures:
    engine = judgement.engine
    taken = judgement.expected_bytes
    return ServingFigures(
        server=server.word,
        title=server.title,
        beside=server.beside,
        version=server.version,
        share=engine.utilization,
        requested_bytes=engine.requested,
        weight_bytes=engine.weights.nbytes,
        buffer_bytes=engine.run.buffers + engine.run.workspace,
        activation_bytes=engine.run.transient,
        graph_bytes=engine.graphs.expected,
        outside_bytes=engine.outside.expected,
        available_bytes=engine.available,
        available_low_bytes=engine.least_available,
        available_high_bytes=engine.most_available,
        block_bytes=engine.layout.bytes_per_block,
        block_tokens=engine.layout.block_tokens,
        blocks=engine.blocks,
        cache_tokens=engine.cache_tokens,
        max_concurrency=engine.concurrency(),
        max_concurrency_low=engine.concurrency(engine.least_available),
        max_concurrency_high=engine.concurrency(engine.most_available),
        max_context=longest,
        max_batched_tokens=engine.batch.max_num_batched_tokens,
        max_sequences=engine.batch.max_num_seqs,
        replicas=judgement.layout.data_parallel,
        left_over_bytes=max(0, engine.total - taken),
    )
