"""A model planned by name against the script that is to train it: where they disagree is often the bug."""

from collections.abc import Mapping

from gpu_plan.planner.capture.job import provider_of
from gpu_plan.planner.capture.request import CapturedFacts
from gpu_plan.planner.capture.workload import differences
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.workload.training import Workload


def script_differences(
    request: Request, cluster: Cluster, spec: ModelSpec, workload: Workload, found: Found[StepJudgement], note: Note
) -> tuple[str, ...]:
    """One line for each value in which the script of `request` is not what is planned.

    One line as well where the script cannot be captured; UnreachableError where there is no such file.
    """
    assert request.script is not None
    source = resolve(request.script)
    assert source.path is not None
    try:
        facts = provider_of(request, cluster, source.path, note).facts()
    except PlanError as error:
        return (f"{request.script} cannot be compared with {spec.id}: {error}",)
    lines = [difference.line() for difference in differences(planned_values(spec, workload, found), facts)]
    return tuple(f"{request.script}: {line}" for line in (*lines, *_unplanned(workload, facts)))


def planned_values(spec: ModelSpec, workload: Workload, found: Found[StepJudgement]) -> Mapping[str, object]:
    """What is planned, by the names of `differences`; what was searched is as the best plan has it."""
    best = next(iter((*found.plans, *(rejected.judgement for rejected in found.rejected))), None)
    values: dict[str, object] = {
        "parameters": spec.num_parameters,
        "trainable_parameters": spec.trainable_parameters,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "seq_len": workload.seq_len if spec.has_sequence else None,
        "attention": workload.attention,
        "peft": workload.peft,
        "micro_batch": workload.micro_batch,
        "grad_accum": workload.grad_accum,
        "checkpointing": workload.checkpointing,
    }
    if best is not None:
        values |= {
            "micro_batch": best.batch.micro_batch,
            "grad_accum": best.batch.accumulation_steps,
            "checkpointing": best.family.checkpointing,
        }
    return values


def _unplanned(workload: Workload, facts: CapturedFacts) -> tuple[str, ...]:
    """An optimizer that has no name here."""
    if facts.optimizer is not None or not facts.optimizers:
        return ()
    names = ", ".join(dict.fromkeys(made.class_name for made in facts.optimizers))
    return (f"optimizer is {workload.optimizer} here, but {names} in the script",)
