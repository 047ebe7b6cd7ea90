"""One real generation on the CPU under torch's profiler, beside the planner's trace of the same call."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.generation.passes import starts_of
from gpu_plan.planner.trace.generation.record import (
    generation_config,
    prepare_for_generation,
    prompt_of,
    record_generation,
)
from gpu_plan.planner.trace.generation.session import trace_of
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.workload.generation import CacheKind, CacheType
from gpu_plan.planner.workload.training import Attention
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, mark, measure, real_twin
from tests.support.replay_cpu import counted, signed_bytes

THREADS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What is generated on both sides."""

    architecture: str
    batch: int = 2
    prompt: int = 40
    steps: int = 3
    attention: Attention = Attention.SDPA
    cache: CacheKind = CacheKind.DYNAMIC
    kv_dtype: CacheType = CacheType.AUTO
    chunks: tuple[int, ...] = ()

    def variant(self) -> GenerationVariant:
        """As the planner calls it."""
        return GenerationVariant(
            prompt=self.prompt,
            steps=self.steps,
            batch=self.batch,
            dtype="float32",
            cache=self.cache,
            cache_length=self.prompt + self.steps if self.cache is CacheKind.STATIC else None,
            kv_dtype=self.kv_dtype,
            attention=self.attention,
            chunks=self.chunks,
        )


def built(case: Generation) -> Any:
    """The model on meta."""
    model = build_model(ARCHITECTURES[case.architecture].config(), attention=case.attention.value)
    prepare_for_generation(model)
    return model


def traced(case: Generation) -> StepTrace:
    """The planner's trace, for CPU kernels."""
    model = built(case)
    return trace_of(model, record_generation(model, case.variant(), CpuProfile(threads=THREADS)))


def real(case: Generation) -> Reference:
    """The same call on a model with random weights."""
    meta = built(case)
    model: Any = real_twin(meta, torch.float32, case.attention.value)
    prepare_for_generation(model)
    config = generation_config(model, case.variant())
    inputs = {name: value.clone() for name, value in prompt_of(model, case.variant()).values.items()}
    # A first call, unmeasured: what modules make once and keep is no part of a generation.
    model.generate(**inputs, generation_config=config)
    return measure(body_of(model, inputs, config))


def body_of(
    model: Any,
    inputs: dict[str, torch.Tensor],
    config: Any,
    more: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> Callable[[], Any]:
    """The measured call; `more` gives arguments of the model's that are made for it alone."""

    passes = iter(range(1000))

    def begin(*_: Any) -> None:
        mark(f"pass:{next(passes)}")

    def body() -> Any:
        handle = model.register_forward_pre_hook(begin)
        threads = torch.get_num_threads()
        torch.set_num_threads(THREADS)
        try:
            mark("begin")
            tokens = model.generate(**inputs, generation_config=config, **more(model))
            mark("end")
            return tokens
        finally:
            torch.set_num_threads(threads)
            handle.remove()

    return body


def peaks_of_trace(trace: StepTrace) -> list[int]:
    """Most bytes above what stood before the call, in each pass; what it begins with included."""
    live = np.cumsum(counted(signed_bytes(trace, 1)))
    starts = starts_of(trace)
    return _peaks(live, starts[1:])


def peaks_of_run(reference: Reference) -> list[int]:
    """The same of the real run."""
    begin, end = reference.marks["begin"], reference.marks["end"]
    sizes = np.asarray([change.nbytes for change in reference.changes[begin:end]], dtype=np.int64)
    cuts = [at - begin for name, at in sorted(reference.marks.items(), key=lambda item: item[1]) if "pass:" in name]
    return _peaks(np.cumsum(counted(sizes)), np.asarray(cuts[1:], dtype=np.int64))


def _peaks(live: IntArray, cuts: IntArray) -> list[int]:
    edges = [0, *cuts.tolist(), len(live)]
    before = np.concatenate([[0], live])
    return [int(max(before[first], live[first:last].max(initial=0))) for first, last in itertools.pairwise(edges)]


def stream_of_trace(trace: StepTrace) -> IntArray:
    """Counted sizes in order."""
    signed = counted(signed_bytes(trace, 1))
    return signed[signed != 0]


def stream_of_run(reference: Reference) -> IntArray:
    """The same of the real run."""
    sizes = [change.nbytes for change in reference.changes[reference.marks["begin"] : reference.marks["end"]]]
    signed = counted(np.asarray(sizes, dtype=np.int64))
    return signed[signed != 0]
