"""Our estimate of a measured case, with the device facts that the measurement recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.gpu.cases import Case
from benchmarks.gpu.models import read_config
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.attention import AttentionBackend, AttentionCall
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile, CudaProfile, KernelProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Peft, Precision, Stack, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedCuda(CudaProfile):
    """A GPU on which torch was told which attention kernel to run."""

    forced: AttentionBackend

    def attention_backend(self, call: AttentionCall) -> AttentionBackend:
        return self.forced


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedCpu(CpuProfile):
    """The same on a CPU."""

    forced: AttentionBackend

    def attention_backend(self, call: AttentionCall) -> AttentionBackend:
        return self.forced


def cluster_of(gpu: Mapping[str, Any] | None) -> Cluster:
    """The machine that was measured: a known GPU with the recorded memory, multiprocessors and capability.

    InputError when the GPU's name is unknown or a fact is missing.
    """
    if gpu is None:
        return parse_cluster("cpu")
    try:
        known = parse_cluster(f"1x{gpu['name']}")
        recorded = replace(
            known.gpu,
            usable_bytes=int(gpu["total_bytes"]),
            usable_basis="torch",
            sm_count=int(gpu["sm_count"]),
            compute_capability=(int(gpu["capability"][0]), int(gpu["capability"][1])),
        )
    except (KeyError, TypeError, IndexError, ValueError) as problem:
        raise InputError(f"the recorded GPU lacks a fact: {type(problem).__name__}: {problem}") from None
    return replace(known, gpu=recorded)


def profile_of(cluster: Cluster, attention: str) -> KernelProfile:
    """The kernels of the measured machine, with the attention backend that a case forces."""
    forced = AttentionBackend(attention) if attention not in ("sdpa", "eager") else None
    gpu = cluster.gpu
    if gpu.is_cpu:
        return CpuProfile() if forced is None else ForcedCpu(forced=forced)
    facts: dict[str, Any] = {"capability": gpu.compute_capability, "sm_count": gpu.sm_count}
    return CudaProfile(**facts) if forced is None else ForcedCuda(**facts, forced=forced)


@dataclass(slots=True, kw_only=True)
class Estimator:
    """Estimates of many cases; what a model's cases share is made once."""

    cluster: Cluster
    _models: dict[tuple[Any, ...], "_Built"] = field(default_factory=dict)

    def judge(self, case: Case) -> StepJudgement:
        """The case as `plan` sees it, allocator simulated. InputError or UsageError where it cannot be seen."""
        built = self._built(case)
        evaluator: Any = Evaluator(
            provider=built,  # type: ignore[arg-type]
            workload=workload_of(case, on_cpu=self.cluster.gpu.is_cpu),
            cluster=self.cluster,
            speed=RooflineModel(),
        )
        family = Family(
            strategy=STRATEGIES["single"],
            offload=Offload.NONE,
            checkpointing=Checkpointing(case.checkpointing),
        )
        batch = Batch(micro_batch=case.micro_batch, accumulation_steps=case.grad_accum)
        judgement: StepJudgement = evaluator.simulate(evaluator.judge(family, batch))
        return judgement

    def profile(self, judgement: StepJudgement) -> MemoryProfile:
        """Its figures as the measured allocator counts them: a CPU's gives what is asked for, without blocks."""
        if not self.cluster.gpu.is_cpu:
            return judgement.profile
        stream, micro_batch = judgement.plan.stream, judgement.batch.micro_batch
        return measure(stream, micro_batch, stream.requested(micro_batch))

    def spec(self, case: Case) -> ModelSpec:
        """Parameters of the case's model."""
        return self._built(case).known

    def _built(self, case: Case) -> "_Built":
        key = (case.model, case.overrides, case.attention, adapter_of(case))
        if key not in self._models:
            if self._models and next(iter(self._models))[0] != case.model:
                self._models.clear()  # cases come model by model; traces are large
            self._models[key] = _build(case, profile_of(self.cluster, case.attention))
        return self._models[key]


def adapter_of(case: Case) -> Adapter | None:
    """The case's adapters."""
    if case.peft == "none":
        return None
    return Adapter(
        peft=Peft(case.peft),
        rank=case.lora_rank,
        targets=tuple(case.lora_targets.split(",")),
        double_quant=case.double_quant,
        compute_dtype=Precision(case.precision).compute_dtype,
    )


_ON_CPU = {"adamw": "adamw-forloop"}
"""torch/optim/optimizer.py: _default_to_fused_or_foreach takes foreach on accelerators alone."""


def workload_of(case: Case, *, on_cpu: bool = False) -> Workload:
    """The case in the words of the planner; a forced backend is still torch's own attention."""
    optimizer = _ON_CPU.get(case.optimizer, case.optimizer) if on_cpu else case.optimizer
    return Workload(
        seq_len=case.seq_len,
        precision=Precision(case.precision),
        optimizer=Optimizer(optimizer),
        attention=Attention.EAGER if case.attention == "eager" else Attention.SDPA,
        stack=Stack(case.stack),
        clipping=case.clipping,
        micro_batch=case.micro_batch,
        grad_accum=case.grad_accum,
        checkpointing=Checkpointing(case.checkpointing),
        strategy="single",
        peft=Peft(case.peft),
    )


@dataclass(slots=True, kw_only=True)
class _Built:
    """A built model and its traces: what an Evaluator asks of its provider."""

    tracer: Tracer
    known: ModelSpec
    traces: dict[tuple[str, int], StepTrace] = field(default_factory=dict)

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        key = (variant.key(), micro_batch)
        if key not in self.traces:
            self.traces[key] = self.tracer.trace(variant, micro_batch)
        return self.traces[key]

    def spec(self) -> ModelSpec:
        return self.known


def _build(case: Case, profile: KernelProfile) -> _Built:
    base = build_model(read_config(case), attention="eager" if case.attention == "eager" else "sdpa")
    model, spec, adapter = base, spec_of(base, model_id=case.model), adapter_of(case)
    if adapter is not None:
        adapted = adapt(base, spec, adapter)
        model, spec = adapted.model, adapted.spec

    def make_batch(_: Any, micro_batch: int, seq_len: int) -> TrainingBatch:
        # What a model takes is read from its own class, not from peft's wrapper.
        return training_batch(base, batch=micro_batch, seq_len=seq_len)

    tracer = Tracer(model=model, make_batch=make_batch, profile=profile, has_sequence=spec.has_sequence)
    return _Built(tracer=tracer, known=spec)
