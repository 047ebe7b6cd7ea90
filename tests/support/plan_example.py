"""Hand-made plan documents of realistic size, for tests of what reads them."""

from dataclasses import replace
from typing import Any

from gpu_plan.planner.plan.document import (
    Alternative,
    Assumption,
    AtPeak,
    Candidate,
    MemoryFigures,
    ModelFacts,
    OutsideAllocator,
    PlanDocument,
    SpeedFigures,
    StrategyChoice,
    TensorLine,
    UncertainTerm,
    workload_document,
)
from gpu_plan.planner.units import MIB
from gpu_plan.planner.workload.training import Workload

PARAMETERS = 8_030_261_248
CAPACITY = 84_932_978_278
CONTEXT, NCCL, SLACK = 516 * MIB, 1024 * MIB, 400 * MIB

H100X8: dict[str, object] = {
    "spec": "8xH100",
    "gpu": "H100",
    "gpu_id": "h100-sxm-80",
    "gpu_name": "NVIDIA H100 SXM5 80GB",
    "gpus": 8,
    "nodes": 1,
    "gpus_per_node": 8,
    "platform": None,
    "marketed_bytes": 80 * 1024**3,
    "usable_bytes": CAPACITY,
    "usable_basis": "torch",
    "compute_capability": "9.0",
    "peak_flops": {"float32": 67_000_000_000_000, "bfloat16": 989_500_000_000_000},
    "intra_node": {"bytes_per_s": 450_000_000_000, "basis": "source", "link": "NVLink 4 + NVSwitch"},
    "inter_node": {"bytes_per_s": 50_000_000_000, "basis": "source"},
}

LLAMA = ModelFacts(
    id="meta-llama/Llama-3.1-8B",
    class_name="LlamaForCausalLM",
    model_type="llama",
    kind="dense",
    parameters=PARAMETERS,
    trainable_parameters=PARAMETERS,
    config_digest="6f4c4f7c0f4a4a0b9e3f2d1c0b9a8f7e6d5c4b3a29181706f5e4d3c2b1a09f8e",
    source="catalog",
    max_positions=131072,
    vocab_size=128256,
)


def memory(*, capacity: int = CAPACITY, phase: str = "backward", **at_peak: int) -> MemoryFigures:
    """Figures whose device use is the peak, the context, NCCL's buffers and an uncertain slack."""
    standing = AtPeak(**at_peak)
    used = standing.total + CONTEXT + NCCL + SLACK
    return MemoryFigures(
        peak_allocated_bytes=standing.total,
        device_used_bytes=used,
        device_used_low_bytes=used - SLACK,
        device_used_high_bytes=used + SLACK,
        capacity_bytes=capacity,
        phase_of_peak=phase,
        at_peak=standing,
        outside_allocator=OutsideAllocator(cuda_context=CONTEXT, nccl=NCCL),
        uncertain=(
            UncertainTerm(name="fragmentation", bytes=SLACK, low_bytes=0, high_bytes=2 * SLACK, basis="assumed"),
        ),
        at_rest_bytes=standing.parameters + standing.optimizer_state,
    )


def speed(step_seconds: float, tokens: int, mfu: float) -> SpeedFigures:
    """Figures with an interval of a fifth either way."""
    return SpeedFigures(
        step_seconds=step_seconds,
        step_seconds_low=step_seconds * 0.8,
        step_seconds_high=step_seconds * 1.2,
        tokens_per_second_per_gpu=tokens / step_seconds / 8,
        samples_per_second=tokens / 4096 / step_seconds,
        mfu=mfu,
        basis="assumed",
        parts={"compute": step_seconds * 0.9, "communication": step_seconds * 0.3},
    )


def sharded(
    name: str, stage: int, micro: int, checkpointing: str, activations: int, step: float, mfu: float
) -> Candidate:
    """Llama-3.1-8B with mixed precision AdamW on eight devices, sharded up to `stage`."""
    states = (4 * PARAMETERS, 4 * PARAMETERS, 8 * PARAMETERS)
    parameters, gradients, optimizer = (
        size // 8 if stage >= least else size for size, least in zip(states, (3, 2, 1), strict=True)
    )
    figures = memory(
        parameters=parameters,
        gradients=gradients,
        optimizer_state=optimizer,
        activations=activations,
        temporary=2_101_346_304 * micro,
        communication=872_448_000 if stage >= 3 else 1_610_612_736,
        buffers=8_704,
        inputs=98_304 * micro,
    )
    return Candidate(
        strategy=StrategyChoice(
            name=name,
            data_parallel=8,
            zero_stage=stage,
            micro_batch_size=micro,
            gradient_accumulation_steps=8 // micro,
            checkpointing=checkpointing,
            precision="bf16-mixed",
        ),
        verdict=figures.verdict,
        memory=figures,
        speed=speed(step, 8 * 8 * 4096, mfu),
        reason=None if figures.verdict != "no" else _reason(name, figures),
        command=f"accelerate launch --config_file plan-accelerate.yaml --num_processes 8"
        f" --mixed_precision bf16 train.py --per_device_train_batch_size {micro}"
        f" --gradient_accumulation_steps {8 // micro}",
    )


def _reason(name: str, figures: MemoryFigures) -> str:
    largest = sorted(figures.at_peak.items().items(), key=lambda item: -item[1])[:2]
    parts = ", ".join(f"{key.replace('_', ' ')} {size / 1024**3:.1f}" for key, size in largest)
    used, capacity = figures.device_used_bytes / 1024**3, figures.capacity_bytes / 1024**3
    label = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "fsdp": "FSDP2"}[name]
    return f"{label} needs {used:.1f} GiB, has {capacity:.1f}: {parts}"


EXPLAIN = (
    TensorLine(
        bytes=4_202_692_608,
        category="activations",
        module="",
        operator="_to_copy",
        shape=(2, 4096, 128256),
        dtype="float32",
        phase="forward",
    ),
    TensorLine(
        bytes=2_147_483_648,
        count=32,
        category="activations",
        module="model.layers.*",
        operator="checkpoint",
        shape=(2, 4096, 4096),
        dtype="bfloat16",
        phase="forward",
    ),
    TensorLine(
        bytes=262_668_288,
        category="parameters",
        module="model.embed_tokens",
        operator=None,
        shape=(16032, 4096),
        dtype="float32",
        phase="at rest",
        basis="source",
    ),
)


def llama_on_8xh100() -> PlanDocument:
    """Several plans that fit, one that is tight, and several that do not fit."""
    plans = (
        replace(sharded("fsdp", 3, 4, "none", 33_822_867_456, 7.24, 0.44), explain=EXPLAIN),
        replace(sharded("zero3", 3, 2, "none", 16_911_433_728, 7.9, 0.41), command="deepspeed train.py"),
        sharded("fsdp", 3, 8, "full", 21_541_814_272, 9.31, 0.34),
        sharded("fsdp", 3, 2, "full", 5_385_453_568, 9.6, 0.33),
        sharded("zero2", 2, 1, "full", 24_400_000_000, 9.9, 0.32),
    )
    rejected = (
        *(sharded("ddp", 0, micro, "full", 2_692_726_784 * micro, 1.0, 0.3) for micro in (1, 2, 4)),
        *(sharded("zero1", 1, micro, "none", 20_455_716_864 * micro, 1.0, 0.3) for micro in (2, 1)),
        sharded("fsdp", 3, 8, "none", 67_645_734_912, 1.0, 0.4),
        Candidate(
            strategy=StrategyChoice(name="single", micro_batch_size=1, precision="bf16-mixed"),
            verdict="no",
            reason="single uses one of the 8 GPUs: a global batch of 64 is shared by all of them",
        ),
    )
    return PlanDocument(
        command="plan meta-llama/Llama-3.1-8B --gpus 8xH100 --global-batch 64",
        created_with={"gpu-plan": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"},
        model=LLAMA,
        cluster=H100X8,
        workload=workload_document(Workload(global_batch=64).with_basis(global_batch="given")),
        plans=plans,
        rejected=rejected,
        assumptions=(
            Assumption(text="the sequences are not packed (mask code reads no positions)", basis="source"),
            Assumption(text="NCCL takes 1.0 GiB per GPU at eight ranks of one node", basis="assumed"),
            Assumption(text="the CUDA context takes 516 MiB", basis="measured"),
        ),
        warnings=("the model's id is gated: its weights need an accepted licence and HF_TOKEN",),
    )


def other_way(change: str, **figures: Any) -> Alternative:
    """Something else that could be done with the same job."""
    return replace(
        Alternative(
            change=change,
            plan="FSDP2, micro batch 2",
            cluster="8xH100",
            device_used_bytes=50 * 1024**3,
            capacity_bytes=80 * 1024**3,
            samples_per_second=12.0,
            tokens_per_second=49_152.0,
            usd_per_hour=17.52,
        ),
        **figures,
    )


def nothing_fits() -> PlanDocument:
    """The same job where every candidate loses."""
    document = llama_on_8xh100()
    losers = tuple(candidate for candidate in document.rejected if candidate.strategy.name != "single")
    return replace(
        document, plans=(), rejected=losers, nearest_change="--checkpointing full would fit with 9.8 GiB to spare"
    )
