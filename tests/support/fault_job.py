"""Jobs for tests of the supervisor: a script that fails on demand, under a plan for CPU processes."""

from collections.abc import Mapping
from pathlib import Path

from gpu_plan.executor.job import Job
from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.plan.document import Candidate, ModelFacts, StrategyChoice, workload_document
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.training import Workload
from tests.support.plan_example import memory

SCRIPT = Path(__file__).with_name("fault_script.py")
LEAN = Path(__file__).with_name("lean_fault_script.py")
CPU: Mapping[str, object] = {
    "spec": "2xcpu",
    "gpu": "CPU",
    "gpu_id": "cpu",
    "gpus": 2,
    "nodes": 1,
    "gpus_per_node": 2,
    "usable_bytes": 8 * 2**30,
    "usable_basis": "assumed",
}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def saved_plan(*, processes: int = 2, micro_batch: int = 4, accumulation: int = 1, name: str = "ddp") -> SavedPlan:
    """A plan for CPU processes, made without tracing a model: its figures are not looked at."""
    figures = memory(capacity=8 * 2**30, parameters=2**20)
    strategy = StrategyChoice(
        name="single" if processes == 1 else name,
        data_parallel=processes,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        precision="fp32",
    )
    return SavedPlan(
        command="plan tiny --gpus 2xcpu",
        created_with=dict(versions()),
        model=ModelFacts(
            id="tiny",
            class_name="Linear",
            model_type=None,
            kind="factory",
            parameters=272,
            trainable_parameters=272,
            config_digest="0",
            has_sequence=False,
        ),
        cluster={**CPU, "spec": f"{processes}xcpu", "gpus": processes, "gpus_per_node": processes},
        workload=workload_document(Workload(seq_len=1)),
        plan=Candidate(strategy=strategy, verdict=figures.verdict, memory=figures),
    )


def job(
    folder: Path,
    *arguments: str,
    processes: int = 2,
    max_restarts: int = 0,
    script: Path = SCRIPT,
    strategy: str = "ddp",
    **plan: int,
) -> Job:
    """The fault script under DDP, or another strategy, with `arguments`."""
    return Job(
        saved=saved_plan(processes=processes, name=strategy, **plan),
        script=script,
        arguments=arguments,
        working_directory=folder,
        max_restarts=max_restarts,
        environment=ENVIRONMENT,
        check_parameters=False,
    )
