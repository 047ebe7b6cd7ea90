"""How a job that rolls out is spread: its batches, and which devices train and which generate."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.recipe.engine import Engine, Engines
from gpu_plan.planner.options.recipe.engine import EngineGiven
from gpu_plan.planner.options.recipe.read import RecipeGiven

_DEGREES = (1, 2, 4, 8)


def batch_words(given: RecipeGiven, words: dict[str, str], world: int) -> tuple[tuple[str, str], ...]:
    """The words with a batch of whole groups of completions. UsageError for one that has none.

    trl 1.16, trainer/grpo_config.py (__post_init__): the generation batch is divisible by the generations.
    """
    micro, steps = given.micro_batch, given.grad_accum
    own = words.get("global-batch")
    if own is None and "micro-batch" not in words:
        words["micro-batch"] = str(micro)
    if own is None:
        if not given.accumulates:
            steps = given.generations // math.gcd(given.generations, micro * world)
        words["grad-accum"] = str(steps)
    whole = micro * steps * world if own is None else int(own) if own.isdecimal() else given.generations
    if whole % given.generations:
        raise UsageError(
            f"{whole} completions an optimizer step are no whole groups of --generations {given.generations}: change"
            " --micro-batch, --grad-accum or --global-batch"
        )
    return tuple(words.items())


def training_part(asked: EngineGiven, cluster: Cluster, beside: Engines) -> Cluster:
    """The devices that train beside a server: all but the fewest that hold one copy of it, of the degree asked for."""
    taken = server_ranks(asked, cluster, beside)
    if cluster.nodes > 1:
        raise UsageError("--vllm server on several nodes is not in this version: give the GPUs of one node")
    return replace(cluster, gpus_per_node=cluster.gpus_per_node - taken, platform=None)


def server_ranks(asked: EngineGiven, cluster: Cluster, beside: Engines) -> int:
    """Devices of one copy of the server. UsageError where none are left for training."""
    degrees = _DEGREES if asked.tensor_parallel is None else (asked.tensor_parallel,)
    problem = f"--vllm server takes GPUs of its own, and {cluster.world_size} leave none to train on: give more --gpus"
    for degree in degrees:
        if degree >= cluster.world_size:
            break
        try:
            beside.on(degree, degree, None)
        except UsageError as refused:
            problem = str(refused)
            continue
        return degree
    raise UsageError(problem)


def engine_for(given: RecipeGiven, cluster: Cluster, beside: Engines) -> Callable[[int], Engine]:
    """The engine by completions of one rank, as the trainer would make it."""
    asked = given.engine
    assert asked is not None
    if asked.mode == "server":
        ranks = server_ranks(asked, cluster, beside)
        server = beside.on(ranks, ranks, None)
        return lambda completions: server
    ranks = asked.tensor_parallel or 1

    @cache
    def colocated(completions: int) -> Engine:
        # max_num_seqs: what the ranks of one copy generate together.
        return beside.on(cluster.world_size, ranks, completions * ranks)

    colocated(given.micro_batch)
    return colocated
