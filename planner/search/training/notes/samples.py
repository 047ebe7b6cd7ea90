"""What is said of a step that has fewer samples than there are devices."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.search.training.candidates import divides, sharing
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.workload.training import Workload


def fewer_samples(workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """Nothing where every device takes samples of its own, or where degrees were given or are an engine's own."""
    given, devices = workload.global_batch, cluster.world_size
    if given is None or given >= devices or sharing(workload) > 1 or divides(workload, devices):
        return ()
    if workload.strategy is not None and find_strategy(workload.strategy).traits.own_model:
        return ()
    return (
        f"--global-batch {given} is less than a sample for each of {devices} GPUs: several compute every sample"
        f" together; from --global-batch {devices} on each can take its own",
    )
