"""A saved plan for the jobs of tests/execution/jobs: the tiny Llama on two CPU ranks, as `plan --save` writes it."""

from gpu_plan.planner.plan.document import Candidate, ModelFacts, StrategyChoice, workload_document
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.training import Precision, Workload
from tests.support.plan_example import H100X8

PARAMETERS = 22_688
"""Of tests/execution/jobs/tiny.py's model."""


def tiny_plan(
    strategy: str = "ddp", *, ranks: int = 2, accumulation: int = 1, micro_batch: int = 4, **more
) -> SavedPlan:
    """A plan without figures; `more` are further fields of the strategy, `optimizer` and `seq_len` of the workload."""
    workload = workload_document(Workload(precision=Precision("fp32")))
    workload |= {"seq_len": more.pop("seq_len", 16), "optimizer": more.pop("optimizer", "adamw")}
    choice = {
        "name": strategy,
        "data_parallel": ranks,
        "micro_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "precision": "fp32",
    }
    return SavedPlan(
        command="plan tiny --gpus 2xcpu",
        created_with={"torch": "2.13.0"},
        model=ModelFacts(
            id="tiny",
            class_name="LlamaForCausalLM",
            model_type="llama",
            kind="dense",
            parameters=PARAMETERS,
            trainable_parameters=PARAMETERS,
            config_digest="0" * 64,
        ),
        cluster=H100X8 | {"spec": f"{ranks}xcpu", "gpu": "cpu", "gpus": ranks, "gpus_per_node": ranks},
        workload=workload,
        plan=Candidate(strategy=StrategyChoice(**{**choice, **more}), verdict="tight"),
    )
