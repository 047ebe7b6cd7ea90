"""What a job that evaluates between its steps was asked for, in `--set eval.*`."""

from gpu_plan.planner.memory.evaluation import Evaluated
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.training import Workload


def evaluated(workload: Workload, data_parallel: int) -> Evaluated | None:
    """What is evaluated; None where nothing is."""
    given = dict(workload.settings)
    if "eval.batch" not in given:
        return None
    batch = int(given["eval.batch"])
    counts = [int(given["eval.accumulation_steps"])] if "eval.accumulation_steps" in given else []
    if "eval.samples" in given:
        counts.append(ceil_div(int(given["eval.samples"]), batch * data_parallel))
    return Evaluated(
        batch=batch,
        batches=min(counts, default=1),
        ranks=data_parallel,
        keeps=given.get("eval.keep_logits") == "true",
        concatenates=workload.stack.traits.is_trainer,
    )
