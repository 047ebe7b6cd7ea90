"""A request, read and checked by its task, ready to be searched."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.recipe.read import refuse_strays
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.workload.recipes import PPO


def prepared(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The request, read and checked by its task. UsageError for what makes no sense."""
    words = dict(request.words)
    if source.kind == "job":
        from gpu_plan.planner.job.several.prepare import prepare as prepare_several

        return prepare_several(request, cluster, source, note, openers)
    if source.kind == "diffused":
        from gpu_plan.planner.job.diffused import prepare as prepare_diffused

        return prepare_diffused(request, cluster, source, note, openers)
    if words.get("recipe", "").lower() == PPO and words.get("task") != "infer":
        from gpu_plan.planner.job.several.prepare import prepare_ppo

        return prepare_ppo(request, cluster, source, note, openers)
    if "recipe" in words and words.get("task") != "infer":
        from gpu_plan.planner.job.recipe.prepare import prepare as prepare_recipe

        return prepare_recipe(request, cluster, source, note, openers)
    refuse_strays(words, request.settings)
    if is_inference(words):
        if "server" in words:
            from gpu_plan.planner.job.serve.prepare import prepare as prepare_serving

            return prepare_serving(request, cluster, source, note)
        from gpu_plan.planner.job.generation import prepare as prepare_generation

        return prepare_generation(request, cluster, source, note, openers)
    from gpu_plan.planner.job.training import prepare

    return prepare(request, cluster, source, note, openers)
