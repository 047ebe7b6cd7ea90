"""Saved plans and jobs of every strategy, made by hand: for tests of what launches them."""

from collections.abc import Mapping
from pathlib import Path

from gpu_plan.executor.job import Job
from gpu_plan.executor.script.read import read_script
from gpu_plan.planner.hardware.cluster import Cluster, cluster_document, parse_cluster
from gpu_plan.planner.plan.document import Candidate, ModelFacts, StrategyChoice, workload_document
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import Precision, Stack, Workload
from tests.support.plan_example import memory

STAGES = {
    "single": 0,
    "ddp": 0,
    "fsdp": 3,
    "fsdp1": 3,
    "hsdp": 3,
    "zero1": 1,
    "zero2": 2,
    "zero3": 3,
    "tp": 0,
    "fsdp_tp": 3,
    "hsdp_tp": 3,
}
UNITS = {name: ("LlamaDecoderLayer",) for name in ("fsdp", "fsdp1", "hsdp")}

MODEL = ModelFacts(
    id="meta-llama/Llama-3.1-8B",
    class_name="LlamaForCausalLM",
    model_type="llama",
    kind="dense",
    parameters=8_030_261_248,
    trainable_parameters=8_030_261_248,
    config_digest="6f4c",
    source="catalog",
)


def cluster_of(gpus: str) -> Cluster:
    return parse_cluster(gpus, ram_bytes=64 * GIB)


def saved(
    strategy: str = "fsdp",
    gpus: str = "8xH100",
    *,
    micro: int = 4,
    steps: int = 2,
    offload: str = "none",
    checkpointing: str = "none",
    precision: str = "bf16-mixed",
    stack: str = "accelerate",
    tensor_parallel: int = 1,
    context_parallel: int = 1,
    settings: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    **workload: object,
) -> SavedPlan:
    """A plan as `--save` would write it; its figures mean nothing."""
    cluster = cluster_of(gpus)
    job = Workload(
        seq_len=2048,
        precision=Precision("bf16-mixed"),
        stack=Stack(stack),
        settings=tuple(sorted((settings or {}).items())),
        **workload,  # type: ignore[arg-type]
    )
    choice = StrategyChoice(
        name=strategy,
        data_parallel=cluster.world_size // tensor_parallel // context_parallel,
        tensor_parallel=tensor_parallel,
        context_parallel=context_parallel,
        zero_stage=STAGES[strategy],
        offload=offload,
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        checkpointing=checkpointing,
        precision=precision,
    )
    figures = memory(parameters=GIB)
    return SavedPlan(
        command="plan meta-llama/Llama-3.1-8B --gpus 8xH100 --save plan.json",
        created_with=dict(versions or {"gpu-plan": "0.1.0"}),
        model=MODEL,
        cluster=cluster_document(cluster),
        workload=workload_document(job),
        plan=Candidate(strategy=choice, verdict="fits", memory=figures, units=UNITS.get(strategy, ())),
    )


def job(plan: SavedPlan, script: Path, *arguments: str, **more: object) -> Job:
    """The job of executing `plan` with a script that exists."""
    read_script(script)
    return Job(
        saved=plan,
        script=script,
        arguments=arguments,
        working_directory=script.parent,
        **more,  # type: ignore[arg-type]
    )
