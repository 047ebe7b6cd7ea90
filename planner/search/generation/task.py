"""Generating, as the search sees a task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.plan.figures import HostFigures, SpeedFigures, StrategyChoice
from gpu_plan.planner.plan.inference import InferenceFigures
from gpu_plan.planner.search.generation.command import prompts_command
from gpu_plan.planner.search.generation.evaluate import GenerationEvaluator
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.limits import NO_LIMITS, Limits, limits
from gpu_plan.planner.search.generation.relaxed import relaxed
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.reasons import failure
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.strategy.generation.layout import Layout, layouts
from gpu_plan.planner.workload.generation import InferWorkload


@dataclass(frozen=True, slots=True)
class GenerationTask:
    """A generation: a family is a layout, and each has one size, the one that was asked for."""

    evaluator: GenerationEvaluator
    command: str = ""
    """The command line that asked for it."""
    bounded: bool = False
    """Whether the best plan's longest context and largest batch are looked for."""

    def families(self) -> Iterator[Layout]:
        """The plainest first. UsageError where the options leave none."""
        wanted = layouts(self._workload, self._cluster)
        if not wanted:
            raise UsageError(_none_left(self._workload.strategy, self._cluster.world_size))
        return iter(wanted)

    def finer(
        self,
        ranking: Ranking,
        plans: Sequence[GenerationJudgement],
        rejected: Sequence[Rejected[GenerationJudgement]] = (),
        others: Sequence[GenerationJudgement] = (),
    ) -> Iterator[Layout]:
        """None: the layouts are all that there is."""
        return iter(())

    def name(self, family: Layout) -> str:
        """The layout's title."""
        return family.title

    def words_of(self, family: Layout) -> str:
        """The same: titles tell layouts apart."""
        return family.title

    def refusal(self, family: Layout) -> str | None:
        """What transformers cannot do."""
        return self.evaluator.refuses(family)

    def hopeless(self, family: Layout, ranking: Ranking, plans: Sequence[GenerationJudgement]) -> str | None:
        """Every layout is looked at."""
        return None

    def by_states(self, family: Layout) -> GenerationJudgement | None:
        """Weights are placed with the passes: nothing is told apart from them."""
        return None

    def explore(self, family: Layout, *, exhaustive: bool) -> Explored[GenerationJudgement]:
        """The layout, judged; CannotSplitError where the model cannot be parted so."""
        judgement = self.evaluator.judge(family)
        reason = failure(self.evaluator, judgement)
        if reason is not None:
            return Explored(rejected=Rejected(judgement=judgement, reason=reason))
        return Explored(best=judgement)

    def smaller(self) -> Iterator[tuple[str, "GenerationTask"]]:
        """Options that the user fixed, with less asked."""
        for words, workload in relaxed(self._workload, self.evaluator.encoder_decoder):
            yield words, self._with(workload, self._cluster)

    def on(self, cluster: Cluster) -> "GenerationTask":
        """The same generation on other devices, on GPUs alone, its layout searched."""
        loose = replace(self._workload, strategy=None, tensor_parallel=None, pipeline_parallel=None, offload="none")
        return self._with(loose, cluster)

    def footprints(self) -> frozenset[object]:
        """Replicas never meet: a further one changes no device's memory."""
        return frozenset(
            (layout.name, layout.tensor_parallel, layout.pipeline_parallel, self._cluster.gpus_per_node)
            if layout.name == "device-map"
            else (layout.tensor_parallel, layout.pipeline_parallel)
            for layout in layouts(self._workload, self._cluster)
        )

    def fitting(self) -> GenerationJudgement | None:
        """The best that fits."""
        return search(self).best

    def words(self, judgement: GenerationJudgement) -> str:
        """The layout's title."""
        return judgement.title

    def choice(self, judgement: GenerationJudgement) -> StrategyChoice:
        """Layout, degrees and batch; offloading only where the map really leaves something off the devices."""
        layout = judgement.layout
        return StrategyChoice(
            name=layout.name,
            data_parallel=layout.data_parallel,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.pipeline_parallel,
            offload=layout.offload if judgement.offloads else "none",
            micro_batch_size=judgement.batch,
            precision=str(self._workload.precision),
        )

    def speed(self, judgement: GenerationJudgement) -> SpeedFigures:
        """The decode step at full context, which is what a generation repeats."""
        times = judgement.times
        step, devices = times.decode, judgement.layout.data_parallel * judgement.layout.ranks
        if judgement.layout.name == "device-map":
            devices *= self._cluster.gpus_per_node  # one process spreads a copy over all of its node
        return SpeedFigures(
            step_seconds=step.step_seconds,
            step_seconds_low=step.low_seconds,
            step_seconds_high=step.high_seconds,
            tokens_per_second_per_gpu=judgement.samples / step.step_seconds / devices,
            samples_per_second=judgement.samples_per_second,
            mfu=step.mfu,
            basis=step.basis,  # type: ignore[arg-type]
            parts={
                "prefill": times.prefill.step_seconds,
                "prefill_low": times.prefill.low_seconds,
                "prefill_high": times.prefill.high_seconds,
                "decode": step.step_seconds,
                "communication": step.communication_seconds,
                "host_transfer": step.host_transfer_seconds,
            },
        )

    def host(self, judgement: GenerationJudgement) -> HostFigures | None:
        """What is offloaded stands in the placement."""
        return None

    def details(self, judgement: GenerationJudgement, *, lost: bool, best: bool) -> Details:
        """Where modules stand and what load, prefill and decode take; of the best, what runs it and how far it goes."""
        offloaded = judgement.cpu_bytes or judgement.disk_bytes
        found = NO_LIMITS
        if best and self.bounded and judgement.verdict == "fits" and not offloaded:
            provider = self.evaluator.provider
            with provider.held():
                found = limits(self.evaluator, judgement, provider.spec().max_positions)
        return Details(
            command=prompts_command(self.command) if best else None,
            placement=judgement.placement,
            inference=_figures(judgement, found),
        )

    @property
    def _workload(self) -> InferWorkload:
        return self.evaluator.workload

    @property
    def _cluster(self) -> Cluster:
        return self.evaluator.cluster

    def _with(self, workload: InferWorkload, cluster: Cluster) -> "GenerationTask":
        evaluator = self.evaluator
        return GenerationTask(
            GenerationEvaluator(
                provider=evaluator.provider,
                workload=workload,
                cluster=cluster,
                speed=evaluator.speed,
                encoder_decoder=evaluator.encoder_decoder,
            )
        )


def _none_left(strategy: str | None, count: int) -> str:
    """Why a strategy cannot be on these devices, and what to give instead."""
    if strategy in ("tp", "pp") and count > 1:
        return f"--strategy {strategy} needs a degree: add --{strategy}, such as --{strategy} 2, which divides {count}"
    return f"--strategy {strategy} needs more than one GPU: use single, or more in --gpus"


def _figures(judgement: GenerationJudgement, found: Limits) -> InferenceFigures:
    times = judgement.times
    return InferenceFigures(
        prompt_tokens=judgement.prompt,
        weight_bytes=judgement.weight_bytes,
        kv_cache_bytes=judgement.kv_cache_bytes,
        load_peak_bytes=judgement.phase_peak(Phase.LOAD),
        prefill_peak_bytes=judgement.phase_peak(Phase.PREFILL),
        decode_peak_bytes=judgement.phase_peak(Phase.DECODE),
        cpu_bytes=judgement.cpu_bytes,
        disk_bytes=judgement.disk_bytes,
        max_context=found.max_context,
        max_batch=found.max_batch,
        limits=dict(found.bounds),
        prefill_seconds=times.prefill.step_seconds,
        decode_seconds=times.decode.step_seconds,
        prefill_tokens_per_second=judgement.prefill_tokens_per_second,
        decode_tokens_per_second=judgement.decode_tokens_per_second,
    )
