"""Judges one way to run a generation: memory of the worst device, and speed."""

from dataclasses import dataclass, field, replace

from gpu_plan.planner.model.kernels import sinks
from gpu_plan.planner.model.quantization.splitting import unsplit
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.mapped import judge_map
from gpu_plan.planner.search.generation.placement import stage_placement
from gpu_plan.planner.search.generation.rank import RankEvaluator
from gpu_plan.planner.search.generation.times import PassTimes, summed
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.workload.generation import CacheType
from gpu_plan.planner.workload.training import Attention


@dataclass(slots=True, kw_only=True)
class GenerationEvaluator(RankEvaluator):
    """Evaluates candidates of one model, workload and cluster."""

    _kept: dict[tuple[Layout, int, int], GenerationJudgement] = field(default_factory=dict)

    def judge(self, layout: Layout, *, context: int | None = None, batch: int | None = None) -> GenerationJudgement:
        """The candidate at a context and batch (the workload's own where not given), its allocator simulated."""
        key = (layout, context or self.workload.context, batch or self.workload.batch)
        if key not in self._kept:
            self.evaluated += 1
            self._kept[key] = judge_map(self, *key) if layout.name == "device-map" else self._judge(*key)
        return self._kept[key]

    def refuses(self, layout: Layout) -> str | None:
        """Why a layout makes no sense here, or None."""
        if self.workload.attention is Attention.FLASH:
            problem = sinks.refusal(self.provider.spec().model_type, self.cluster.gpu.compute_capability)
            if problem is not None:
                return problem
        if layout.tensor_parallel > 1 and (why := unsplit(self.provider.scheme)) is not None:
            return why
        if layout.ranks > 1 and self.encoder_decoder and layout.pipeline_parallel > 1:
            return "transformers cuts no encoder-decoder into stages"
        if self.workload.chunk is not None and self.encoder_decoder:
            return "--set prefill.chunk is about decoders: an encoder takes its input whole"
        if layout.pipeline_parallel > 1 and self.workload.kv_dtype is CacheType.FP8:
            return "--kv-dtype fp8 with pipeline stages is not in this version"
        return None

    def _judge(self, layout: Layout, context: int, batch: int) -> GenerationJudgement:
        """The worst rank's judgement: of a pipeline's stages the first, a middle one and the last are looked at."""
        last = layout.pipeline_parallel - 1
        stages = sorted({0, min(1, last), last})
        generated = [self.generation(layout, context, batch, stage) for stage in stages]
        judged = [self.rank(layout, context, batch, each, self.states(each.cuts[0].trace)) for each in generated]
        worst = max(judged, key=lambda judgement: judgement.high_bytes)
        if last == 0:
            return worst
        return replace(
            worst,
            times=_one_after_another([judgement.times for judgement in judged], layout.pipeline_parallel),
            placement=stage_placement(self.provider.spec(), judged, layout.pipeline_parallel),
        )


def _one_after_another(stages: list[PassTimes], count: int) -> PassTimes:
    """Of a batch that goes through `count` stages, of which the first, a middle and the last one are given.

    transformers sends one batch through all stages before the next (pipeline_parallel_naive_forward).
    """

    def whole(times: list[StepTime]) -> StepTime:
        middle = [(times[1], count - 2.0)] if count > 2 else []
        return summed([(times[-1], 1.0), *middle, (times[0], 1.0)])

    return PassTimes(prefill=whole([s.prefill for s in stages]), decode=whole([s.decode for s in stages]))
