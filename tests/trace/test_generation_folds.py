"""A generation whose equal blocks are recorded once is the one in which each is: every event, byte and reference."""

from dataclasses import replace

import pytest

from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.generation.session import GenerationSession
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.workload.generation import CacheKind, CacheType
from gpu_plan.planner.workload.training import Attention
from tests.support.same_trace import assert_same_trace
from tests.trace.test_fold_equals_full import MODELS

H100 = DeviceKind(capability=(9, 0), sm_count=132)
GENERATING = [name for name in MODELS if name not in ("bert", "vit", "whisper", "mamba-2")]
"""Those that generate text; Codestral's mamba-2 kernels stand in the training step's test."""
PLAIN = GenerationVariant(prompt=40, steps=2, batch=1, dtype="bfloat16", attention=Attention.SDPA)
VARIANTS = {
    "one sample": PLAIN,
    "three samples": replace(PLAIN, batch=3, steps=3),
    "static": replace(PLAIN, cache=CacheKind.STATIC, cache_length=60),
    "fp8 cache": replace(PLAIN, kv_dtype=CacheType.FP8, batch=2),
    "stage": replace(PLAIN, pipeline_parallel=2, stage=1),
    "part": replace(PLAIN, tensor_parallel=2),
}


def session_of(name: str, scheme: Scheme | None = None) -> GenerationSession:
    config = {key: value for key, value in MODELS[name].config().items() if key != "quantization_config"}
    source = ModelSource(kind="config", id=name, digest=name, config=config)
    return GenerationSession(source, H100, "sdpa", "bfloat16", scheme)


def _check(name: str, variant: str) -> None:
    session = session_of(name)
    folded = session.trace(VARIANTS[variant])
    assert session.fold, session._notes
    session.fold = False
    full = session.trace(VARIANTS[variant])
    assert_same_trace(folded, full)


@pytest.mark.parametrize(("name", "variant"), [("llama", "three samples"), ("deepseek-v3", "one sample")])
def test_folded_generation_equals_full(name: str, variant: str) -> None:
    _check(name, variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["one sample", "three samples"])
@pytest.mark.parametrize("name", GENERATING)
def test_folded_generation_equals_full_over_classes(name: str, variant: str) -> None:
    _check(name, variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["static", "fp8 cache", "stage", "part"])
@pytest.mark.parametrize("name", ["llama", "qwen3-moe"])
def test_folded_generation_equals_full_over_caches_and_ranks(name: str, variant: str) -> None:
    _check(name, variant)
