"""A request, read and checked by its task, ready to be searched."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference


def prepared(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The request, read and checked by its task. UsageError for what makes no sense."""
    if is_inference(dict(request.words)):
        from gpu_plan.planner.job.generation import prepare as prepare_generation

        return prepare_generation(request, cluster, source, note, openers)
    from gpu_plan.planner.job.training import prepare

    return prepare(request, cluster, source, note, openers)
