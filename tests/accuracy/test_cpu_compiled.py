"""Compiled steps as they are replayed against torch.compile itself, by the CPU allocator's own events.

The reference goes through Dynamo, compiles and runs; the replay captures with AOTAutograd alone and runs nothing.
"""

import pytest

from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.variant import Compilation
from gpu_plan.planner.workload.training import Checkpointing
from tests.accuracy.compiled_cases import CompiledCase, reference_of, trace_of
from tests.support.replay_cpu import measured, replayed, same_stream
from tests.support.sample import sample

FAMILIES = ("llama-3", "qwen2", "gpt2", "gemma-2", "pythia", "phi-3", "olmo-2", "falcon")


def _case(
    architecture: str, backend: str, regions: str, checkpointing: Checkpointing, weights: str = "float32"
) -> CompiledCase:
    compilation = Compilation(backend=backend, regions=regions)  # type: ignore[arg-type]
    return CompiledCase(
        architecture=architecture, compilation=compilation, checkpointing=checkpointing, weights=weights
    )


@pytest.mark.parametrize(
    ("regions", "checkpointing"),
    sample([("blocks", Checkpointing.NONE), ("model", Checkpointing.FULL)], kept=[("blocks", Checkpointing.NONE)]),
)
def test_every_allocation_and_free_in_order(regions: str, checkpointing: Checkpointing) -> None:
    case = _case("llama-3", "aot_eager", regions, checkpointing)
    trace, real = trace_of(case), reference_of(case)
    assert same_stream(trace, case.micro_batch, real)
    assert measured(real).peak > measured(real).forward_end > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("regions", ["blocks", "regional", "model"])
def test_peak_and_held_bytes_equal(backend: str, regions: str, checkpointing: Checkpointing) -> None:
    case = _case("llama-3", backend, regions, checkpointing)
    assert replayed(trace_of(case), case.micro_batch) == measured(reference_of(case))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_selective_checkpointing_of_blocks(backend: str) -> None:
    case = _case("llama-3", backend, "blocks", Checkpointing.SELECTIVE)
    assert replayed(trace_of(case), case.micro_batch) == measured(reference_of(case))


# GPT-2 and Pythia are left out in bfloat16: oneDNN's addmm then packs copies of its operands, as no GPU does.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "weights"),
    [*((name, "float32") for name in FAMILIES), *((name, "bfloat16") for name in ("llama-3", "qwen2", "gemma-2"))],
)
def test_peak_and_held_bytes_equal_for_families(name: str, weights: str) -> None:
    case = _case(name, "inductor", "blocks", Checkpointing.NONE, weights)
    assert replayed(trace_of(case), case.micro_batch) == measured(reference_of(case))


@pytest.mark.slow
def test_a_graph_that_names_constants_runs_on_the_planned_gpu() -> None:
    """Falcon takes heads by lists of indices, which inductor keeps as tensors beside its text."""
    case = _case("falcon", "inductor", "blocks", Checkpointing.NONE, "bfloat16")
    trace = trace_of(case, CudaProfile(capability=(8, 0), sm_count=108))
    assert "index" in trace.operator_names
