"""A plan for a trial launch where the user has none: a small shipped model, pinned."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.saved import SavedPlan, saved_plan

_MODEL = "EleutherAI/pythia-70m"
"""Its config is shipped: nothing is downloaded, and its weights are not needed."""


def small_plan(gpus: str, strategy: str | None, precision: str | None) -> SavedPlan:
    """The plan of a small model on `gpus`. UsageError where the strategy cannot run there."""
    from gpu_plan.commands.job.asking import find_plans
    from gpu_plan.planner.options.given.named import named, namespace, shown_words

    values = {"model": _MODEL, "gpus": gpus, "pin": True, "seq-len": 64, "micro-batch": 2, "precision": precision}
    job = named({**values, "strategy": strategy or _strategy(gpus)})
    document = find_plans(namespace(job), shown_words(job)).document
    if document.best is None:
        reasons = [candidate.reason for candidate in document.rejected if candidate.reason]
        raise UsageError(f"{strategy or 'the trial'} cannot run on {gpus}: {reasons[0] if reasons else 'no plan fits'}")
    return saved_plan(document)


def _strategy(gpus: str) -> str:
    """Data parallel on several devices, else single."""
    from gpu_plan.planner.hardware.cluster import parse_cluster
    from gpu_plan.planner.hardware.detect import detect_cluster
    from gpu_plan.planner.hardware.ram import machine_ram_bytes
    from gpu_plan.planner.options.config import user_gpus
    from gpu_plan.planner.strategy.known import unsharded

    cluster = detect_cluster() if gpus == "auto" else parse_cluster(gpus, user_gpus(), machine_ram_bytes())
    return unsharded(cluster.world_size).name
