"""Judges one device of a generation: what it allocates, and how long its passes take."""

from dataclasses import dataclass, field, replace

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.memory.overheads import Term, cuda_context, nccl
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.search.evaluator import BaseEvaluator
from gpu_plan.planner.search.generation.device_map import Mapped
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.times import PassTimes, pass_time, summed
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.base import workspace_bytes
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.strategy.generation.stream import GenerationStream, States, cache_at_full_context, nbytes_of
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.generation.generations import Generations
from gpu_plan.planner.trace.generation.passes import Cut, cut, starts_of
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.generation import CacheKind, InferWorkload

_BEYOND_ANY_DEVICE = 2**45
"""Bytes of tensors from which on no allocator needs to be simulated to say that they do not fit."""
_STEPS = 3
"""Passes of a generation that is longer than the planner records: prefill, first decode step, another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One generation at full length, as the planner has it."""

    cuts: tuple[Cut, ...]
    """The run: prefill and first steps, then, where there are more, the step at full context. Of a prefill in many
    pieces the first goes before, and the last two: more tokens before a piece never take less."""
    prefills: tuple[int, ...] = (1,)
    """Passes at the beginning of each cut that take the prompt."""
    pieces: tuple[tuple[Cut, float], ...] = ()
    """Passes of a prefill in pieces, each with how many it stands for; none: it is one."""

    @property
    def prompt(self) -> int:
        """Tokens of the prompt of one sample."""
        return self.cuts[1 if len(self.pieces) > 2 else 0].trace.tokens_per_sample

    @property
    def prefill(self) -> tuple[tuple[Cut, float], ...]:
        return self.pieces or ((cut(self.cuts[0].trace, 0, 0), 1.0),)

    @property
    def last(self) -> Cut:
        """The decode step at full context alone."""
        final = self.cuts[-1]
        return cut(final.trace, len(starts_of(final.trace)) - 1)


@dataclass(slots=True, kw_only=True)
class RankEvaluator(BaseEvaluator[InferWorkload]):
    """Judges single devices; `provider` gives the generations that they replay."""

    provider: Generations
    encoder_decoder: bool = False
    maps: dict[Layout, Mapped] = field(default_factory=dict)
    """Device maps on GPUs alone that fit, of the last size that was looked at."""

    def rank(
        self,
        layout: Layout,
        context: int,
        batch: int,
        generated: Generated,
        states: States,
        times: PassTimes | None = None,
    ) -> GenerationJudgement:
        """One rank's judgement, or one device's of a map, whose `times` are those of all devices."""
        stream = GenerationStream(states, generated.cuts, generated.prefills).build()
        use = GenerationJudgement(
            layout=layout,
            context=context,
            batch=batch,
            prompt=generated.prompt,
            run=stream,
            profile=measure(stream, 1),
            terms=self.terms(layout),
            host_bytes=0,
            usual_host_bytes=self.usual_host_bytes,
            capacity_bytes=self.capacity_bytes,
            device_bytes=self.device_bytes,
            allocator=self.allocator,
            shares_host=self.cluster.gpu.is_cpu,
            weight_bytes=states.nbytes,
            kv_cache_bytes=nbytes_of(generated.last.trace, cache_at_full_context(generated.last)),
            new_tokens=self.workload.new_tokens,
            times=times or self.times(generated, context, layout.tensor_parallel),
        )
        if use.profile.peak_allocated_bytes > _BEYOND_ANY_DEVICE:
            return use
        use, blocks = self.simulate_blocks(use)
        return replace(use, blocks=blocks)

    def generation(self, layout: Layout, context: int, batch: int, stage: int = 0) -> Generated:
        """The recorded passes of a generation to `context`."""
        new = min(self.workload.new_tokens, context - 1)
        if self.workload.chunk is not None and context - new > self.workload.chunk:
            return self._in_pieces(layout, context, batch, new, self.workload.chunk, stage)
        if new < _STEPS:
            whole = self._variant(layout, context, batch, stage=stage, prompt=context - new, steps=new + 1)
            return Generated(cuts=(cut(self.provider.trace(whole), 0),))
        begun = self._variant(layout, context, batch, stage=stage, prompt=context - new, steps=_STEPS)
        full = replace(begun, prefix=new - _STEPS + 1) if self.encoder_decoder else replace(begun, prompt=context - 2)
        return Generated(
            cuts=(cut(self.provider.trace(begun), 0, 1), cut(self.provider.trace(full), _STEPS - 1)),
        )

    def _in_pieces(self, layout: Layout, context: int, batch: int, new: int, chunk: int, stage: int) -> Generated:
        """transformers generation/utils.py: GenerationMixin._prefill with prefill_chunk_size."""
        prompt, steps = context - new, min(new + 1, _STEPS)
        count, before = ceil_div(prompt, chunk), 0
        ends: tuple[int, ...] = (chunk, prompt - chunk * (count - 1))
        variant = self._variant(layout, context, batch, stage=stage, prompt=prompt, steps=steps)
        if count > 2:
            before, ends = 1, (prompt - sum(ends), *ends)
        begun = self.provider.trace(replace(variant, chunks=ends))
        last = len(ends) - 1
        runs, prefills = [cut(begun, before, last + 1 if new >= _STEPS else None)], [2]
        pieces = [(cut(begun, last - 1, last - 1), 1.0), (cut(begun, last, last), 1.0)]
        if count > 2:
            first = cut(self.provider.trace(replace(variant, prompt=chunk)), 0, 0)
            runs, prefills = [first, *runs], [1, *prefills]
            # What pieces take grows evenly with the tokens before them.
            pieces = [(first, (count - 1) / 2), (pieces[0][0], (count - 1) / 2), pieces[1]]
        if new >= _STEPS:
            runs.append(cut(self.provider.trace(replace(variant, prompt=context - 2)), _STEPS - 1))
        return Generated(cuts=tuple(runs), prefills=tuple(prefills), pieces=tuple(pieces))

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

    def states(self, trace: StepTrace) -> States:
        is_cpu = self.cluster.gpu.is_cpu
        held = {parameter.name: parameter for parameter in trace.parameters}
        copies = [(name, held[kept]) for name, kept in self.provider.copies().items() if kept in held]
        return States(
            weights=tuple((parameter.name, parameter_bytes(parameter)) for parameter in trace.parameters),
            buffers=tuple(trace.buffer_bytes),
            merged=self.provider.merged(),
            copies=tuple((name, parameter_bytes(kept), kept.numel) for name, kept in copies),
            workspace=self.workspace,
            warm_up=not is_cpu,
        )

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
        prompt = generated.prompt
        times = [(self._pass(part, prompt, ranks, causal=True), count) for part, count in generated.prefill]
        return PassTimes(
            prefill=times[0][0] if len(times) == 1 else summed(times),
            decode=self._pass(generated.last, context, ranks, causal=False),
        )

    def _pass(self, part: Cut, length: int, ranks: int, *, causal: bool) -> StepTime:
        dtype = self.workload.precision.dtype
        return pass_time(part, self.cluster, self.speed, dtype=dtype, length=length, causal=causal, ranks=ranks)


def parameter_bytes(parameter: ParameterInfo) -> int:
    """Bytes of a parameter as it stands in the model."""
    return ceil_div(parameter.numel * element_bits(parameter.dtype), 8)
