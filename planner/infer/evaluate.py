"""Judges one way to run a generation: memory of the worst device, and speed."""

from dataclasses import dataclass, field, replace

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.infer.layout import Layout
from gpu_plan.planner.infer.placement import stage_placement
from gpu_plan.planner.infer.speed import PassTimes, pass_time
from gpu_plan.planner.infer.stream import GenerationStream, States, cache_at_full_context, nbytes_of
from gpu_plan.planner.memory.allocator.words import allocator_settings
from gpu_plan.planner.memory.overheads import Term, cuda_context, nccl
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.memory.stream import Phase, RankStream
from gpu_plan.planner.plan.inference import Placement
from gpu_plan.planner.search.device_use import DeviceUse, simulated
from gpu_plan.planner.speed.model import SpeedModel, StepTime
from gpu_plan.planner.strategy.base import workspace_bytes
from gpu_plan.planner.trace.events import IntArray, ParameterInfo, StepTrace
from gpu_plan.planner.trace.generation.generations import Generations
from gpu_plan.planner.trace.generation.passes import Cut, cut, starts_of
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.generation import CacheKind, CacheType, InferWorkload

_BEYOND_ANY_DEVICE = 2**45
"""Bytes of tensors from which on no allocator needs to be simulated to say that they do not fit."""
_STEPS = 3
"""Passes of a generation that is longer than the planner records: prefill, first decode step, another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One generation at full length, as the planner has it."""

    cuts: tuple[Cut, ...]
    """The run: prefill and first steps, then, where there are more, the step at full context."""

    @property
    def prefill(self) -> Cut:
        return cut(self.cuts[0].trace, 0, 0)

    @property
    def last(self) -> Cut:
        """The decode step at full context alone."""
        if len(self.cuts) > 1:
            return self.cuts[-1]
        trace = self.cuts[0].trace
        return cut(trace, len(starts_of(trace)) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferJudgement(DeviceUse):
    """What one candidate takes and gives."""

    layout: Layout
    context: int
    batch: int
    """Samples of one replica."""
    stream: RankStream
    weight_bytes: int
    kv_cache_bytes: int
    new_tokens: int
    times: PassTimes
    placement: Placement | None = None
    cpu_bytes: int = 0
    """RAM for weights that are offloaded."""
    disk_bytes: int = 0
    shortage: str | None = None
    """What else than the devices does not suffice, in words."""
    notes: tuple[str, ...] = ()
    blocks: IntArray | None = field(default=None, compare=False, repr=False)
    """Bytes that the allocator charges for each storage of the stream; None where it was not simulated."""

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens of all replicas."""
        return self.samples * self.prompt / self.times.prefill.step_seconds

    @property
    def decode_tokens_per_second(self) -> float:
        """New tokens of all replicas, at full context."""
        return self.samples / self.times.decode.step_seconds

    @property
    def seconds_per_sample(self) -> float:
        """Of one batch from prompt to last token; every decode step is counted as the one at full context."""
        return self.times.prefill.step_seconds + (self.new_tokens - 1) * self.times.decode.step_seconds

    @property
    def samples(self) -> int:
        """Of all replicas together."""
        return self.batch * self.layout.data_parallel

    @property
    def prompt(self) -> int:
        """Tokens of the first pass of one sample."""
        return self.stream.trace.tokens_per_sample

    def phase_peak(self, phase: Phase) -> int:
        """Most allocated in a phase."""
        return self.profile.phase_peaks.get(phase, 0)


@dataclass(slots=True, kw_only=True)
class GenerationEvaluator:
    """Evaluates candidates of one model, workload and cluster."""

    provider: Generations
    workload: InferWorkload
    cluster: Cluster
    speed: SpeedModel
    encoder_decoder: bool = False
    _kept: dict[tuple[Layout, int, int], InferJudgement] = field(default_factory=dict)

    def judge(self, layout: Layout, *, context: int | None = None, batch: int | None = None) -> InferJudgement:
        """The candidate at a context and batch (the workload's own where not given), its allocator simulated."""
        key = (layout, context or self.workload.context, batch or self.workload.batch)
        if key not in self._kept:
            self._kept[key] = self._map(*key) if layout.name == "device-map" else self._judge(*key)
        return self._kept[key]

    def refuses(self, layout: Layout) -> str | None:
        """Why a layout makes no sense here, or None."""
        if layout.tensor_parallel > 1 and self.workload.quantize != "none":
            return f"tensor parallel of {self.workload.quantize} weights is not in this version"
        if layout.ranks > 1 and self.encoder_decoder and layout.pipeline_parallel > 1:
            return "transformers cuts no encoder-decoder into stages"
        if layout.pipeline_parallel > 1 and self.workload.kv_dtype is CacheType.FP8:
            return "--kv-dtype fp8 with pipeline stages is not in this version"
        return None

    def _map(self, layout: Layout, context: int, batch: int) -> InferJudgement:
        from gpu_plan.planner.infer.mapped import judge_map

        return judge_map(self, layout, context, batch)

    def _judge(self, layout: Layout, context: int, batch: int) -> InferJudgement:
        """The worst rank's judgement: of a pipeline's stages the first, a middle one and the last are looked at."""
        last = layout.pipeline_parallel - 1
        stages = sorted({0, min(1, last), last})
        generated = [self.generation(layout, context, batch, stage) for stage in stages]
        judged = [self.rank(layout, context, batch, each, self._states(each.cuts[0].trace)) for each in generated]
        worst = max(judged, key=lambda judgement: judgement.high_bytes)
        if last == 0:
            return worst
        return replace(
            worst,
            times=_one_after_another([judgement.times for judgement in judged], layout.pipeline_parallel),
            placement=stage_placement(self.provider.spec(), judged, layout.pipeline_parallel),
        )

    def rank(self, layout: Layout, context: int, batch: int, generated: Generated, states: States) -> InferJudgement:
        """One rank's judgement, or one device's of a map."""
        stream = GenerationStream(states, generated.cuts).build()
        use = InferJudgement(
            layout=layout,
            context=context,
            batch=batch,
            stream=stream,
            profile=measure(stream, 1),
            terms=self.terms(layout),
            host_bytes=0,
            capacity_bytes=self.capacity_bytes,
            shares_host=self.cluster.gpu.is_cpu,
            weight_bytes=states.nbytes,
            kv_cache_bytes=nbytes_of(generated.last.trace, cache_at_full_context(generated.last)),
            new_tokens=self.workload.new_tokens,
            times=self.times(generated, context, layout.tensor_parallel),
        )
        if use.profile.peak_allocated_bytes > _BEYOND_ANY_DEVICE:
            return use
        settings = allocator_settings(dict(self.workload.settings))
        use, blocks = simulated(use, stream, 1, settings=settings, caches=not self.cluster.gpu.is_cpu)
        return replace(use, blocks=blocks)

    def generation(self, layout: Layout, context: int, batch: int, stage: int = 0) -> Generated:
        """The recorded passes of a generation to `context`."""
        new = min(self.workload.new_tokens, context - 1)
        if new < _STEPS:
            whole = self._variant(layout, context, batch, stage=stage, prompt=context - new, steps=new + 1)
            return Generated(cuts=(cut(self.provider.trace(whole), 0),))
        begun = self._variant(layout, context, batch, stage=stage, prompt=context - new, steps=_STEPS)
        full = replace(begun, prefix=new - _STEPS + 1) if self.encoder_decoder else replace(begun, prompt=context - 2)
        return Generated(
            cuts=(cut(self.provider.trace(begun), 0, 1), cut(self.provider.trace(full), _STEPS - 1)),
        )

    def _variant(
        self, layout: Layout, context: int, batch: int, *, stage: int, prompt: int, steps: int
    ) -> GenerationVariant:
        workload = self.workload
        return GenerationVariant(
            prompt=prompt,
            steps=steps,
            batch=batch,
            dtype=workload.precision.dtype,
            cache=workload.cache,
            cache_length=context if workload.cache is CacheKind.STATIC else None,
            kv_dtype=workload.kv_dtype,
            attention=workload.attention,
            quantize=workload.quantize,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.pipeline_parallel,
            stage=stage,
        )

    def _states(self, trace: StepTrace) -> States:
        is_cpu = self.cluster.gpu.is_cpu
        return States(
            weights=tuple((parameter.name, parameter_bytes(parameter)) for parameter in trace.parameters),
            buffers=tuple(trace.buffer_bytes),
            merged=self.provider.merged(),
            workspace=self.workspace,
            warm_up=not is_cpu,
        )

    @property
    def capacity_bytes(self) -> int:
        """Of one device, without what is kept free for others."""
        return self.cluster.capacity_bytes - self.workload.reserve_bytes

    @property
    def workspace(self) -> int:
        """cuBLAS's; none on a CPU."""
        return 0 if self.cluster.gpu.is_cpu else workspace_bytes(self.cluster.gpu.compute_capability)

    def terms(self, layout: Layout) -> tuple[Term, ...]:
        """What lies outside the allocator."""
        return (cuda_context(self.cluster), self._nccl(layout))

    def _nccl(self, layout: Layout) -> Term:
        """Replicas of a generation never meet; the ranks of one do."""
        if layout.ranks > 1:
            return nccl(self.cluster)
        return Term(name="NCCL", low=0, expected=0, high=0, basis="source", source="replicas do not communicate")

    def times(self, generated: Generated, context: int, ranks: int) -> PassTimes:
        """Of the prefill and of the decode step at full context."""
        prompt = generated.cuts[0].trace.tokens_per_sample
        return PassTimes(
            prefill=self._pass(generated.prefill, prompt, ranks, causal=True),
            decode=self._pass(generated.last, context, ranks, causal=False),
        )

    def _pass(self, part: Cut, length: int, ranks: int, *, causal: bool) -> StepTime:
        dtype = self.workload.precision.dtype
        return pass_time(part, self.cluster, self.speed, dtype=dtype, length=length, causal=causal, ranks=ranks)


def _one_after_another(stages: list[PassTimes], count: int) -> PassTimes:
    """Of a batch that goes through `count` stages, of which the first, a middle and the last one are given.

    transformers sends one batch through all stages before the next (pipeline_parallel_naive_forward).
    """

    def whole(times: list[StepTime]) -> StepTime:
        middle = [times[1]] * (count - 2) if count > 2 else []
        summed = [times[0], *middle, times[-1]]
        first = summed[0]
        return replace(
            first,
            step_seconds=sum(time.step_seconds for time in summed),
            low_seconds=sum(time.low_seconds for time in summed),
            high_seconds=sum(time.high_seconds for time in summed),
            communication_seconds=sum(time.communication_seconds for time in summed),
            mfu=None,
        )

    return PassTimes(prefill=whole([s.prefill for s in stages]), decode=whole([s.decode for s in stages]))


def parameter_bytes(parameter: ParameterInfo) -> int:
    """Bytes of a parameter as it stands in the model."""
    return ceil_div(parameter.numel * element_bits(parameter.dtype), 8)
