"""Degrees that the search tries under one strategy: ranks that compute one copy together, and replicas of the whole."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.context.rules import why_uncut, why_whole
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.traits import Traits
from gpu_plan.planner.workload.training import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Degrees of one family."""

    tensor: int = 1
    experts: int = 1
    context: int = 1
    replicas: int | None = None
    """None for what they are by default."""


def spreads(traits: Traits, workload: Workload, cluster: Cluster) -> Iterator[Spread]:
    """Degrees of tensor, expert and context parallel, and numbers of replicas."""
    for degree in tensor_degrees(traits, workload, cluster):
        for experts in expert_degrees(traits, workload, cluster):
            for context in context_degrees(traits, workload, cluster):
                found = Spread(tensor=degree, experts=experts, context=context)
                yield found
                for replicas in replica_counts(traits, workload, cluster):
                    yield replace(found, replicas=replicas)


def context_degrees(traits: Traits, workload: Workload, cluster: Cluster) -> list[int]:
    """Ranks that share the tokens of a sample under a strategy: as given; else none, and every number of them within a
    node. Which of those are looked at is the task's to say: each takes a trace of its own."""
    given = workload.context_parallel
    if not traits.context_parallel or given is not None:
        return [given or 1] if cluster.world_size % (given or 1) == 0 else []
    if cluster.gpu.is_cpu or why_whole(workload, traits.context_parallel) is not None:
        return [1]
    possible = [degree for degree in range(2, cluster.gpus_per_node + 1) if cluster.gpus_per_node % degree == 0]
    return [1, *(degree for degree in possible if why_uncut(workload.seq_len, degree, traits.context_parallel) is None)]


def expert_degrees(traits: Traits, workload: Workload, cluster: Cluster) -> list[int]:
    """Ranks that hold whole experts each under a strategy: as given; every number within a node where it has to be one;
    otherwise none."""
    if not traits.expert_parallel:
        return [1]
    if workload.expert_parallel is not None or traits.expert_parallel == "may":
        return [workload.expert_parallel or 1]
    return [degree for degree in range(2, cluster.gpus_per_node + 1) if cluster.gpus_per_node % degree == 0]


def tensor_degrees(traits: Traits, workload: Workload, cluster: Cluster) -> list[int]:
    """Ranks that compute one copy together under a strategy: as given, or every number of them within a node.

    What is cut within a node never waits for the network; more is tried where it is asked for.
    """
    if not traits.tensor_parallel:
        return [1]
    world, given = cluster.world_size, workload.tensor_parallel
    if traits.tensor_parallel == "all":
        within = given == world or (given is None and (world <= cluster.gpus_per_node or workload.strategy is not None))
        return [world] if within else []
    possible = range(2, cluster.gpus_per_node + 1) if given is None else [given]
    return [
        degree
        for degree in possible
        if degree < world and world % degree == 0 and (given or cluster.gpus_per_node % degree == 0)
    ]


def replica_counts(traits: Traits, workload: Workload, cluster: Cluster) -> list[int]:
    """Numbers of replicas beside one on each node: fewer, each over several whole nodes; none where it was said."""
    if not traits.replicates or workload.dp_replicate is not None:
        return []
    return [count for count in range(2, cluster.nodes) if cluster.nodes % count == 0]
