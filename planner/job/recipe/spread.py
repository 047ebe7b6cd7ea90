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


def batch_words(given: RecipeGiven, words: dict[str, str], world: int, *, pinned: bool) -> tuple[tuple[str, str], ...]:
    """The words with a batch of whole groups of completions. UsageError for one that has none.

    Where nobody says how it is cut into micro batches, that is searched.

    trl 1.16, trainer/grpo_config.py (__post_init__): the generation batch is divisible by the generations.
    """
    micro, steps = given.micro_batch, given.grad_accum
    own = words.get("global-batch")
    if own is None and not given.accumulates:
        steps = given.generations // math.gcd(given.generations, micro * world)
    if own is None and not given.accumulates and "micro-batch" not in words and not pinned:
        words["global-batch"] = own = str(micro * steps * world)
    elif own is None:
        words |= {"micro-batch": str(micro), "grad-accum": str(steps)}
    whole = micro * steps * world if own is None else int(own) if own.isdecimal() else given.generations
    if whole % given.generations:
        raise UsageError(
            f"{whole} completions an optimizer step are no whole groups of --generations {given.generations}: change"
            " --micro-batch, --grad-accum or --global-batch"
        )
    return tuple(words.items())


def training_part(cluster: Cluster, taken: int) -> Cluster:
    """The devices that train beside a server that has `taken` of them: of several nodes it has whole ones."""
    if cluster.nodes > 1:
        whole, rest = divmod(taken, cluster.gpus_per_node)
        if rest or not 0 < whole < cluster.nodes:
            raise UsageError(
                f"a server that takes {taken} of {cluster.world_size} GPUs on {cluster.nodes} nodes has a part of a"
                " node: of several only whole ones can be a server's in this version; give the GPUs of one node"
            )
        return replace(cluster, nodes=cluster.nodes - whole, platform=None)
    return replace(cluster, gpus_per_node=cluster.gpus_per_node - taken, platform=None)


def server_copies(cluster: Cluster, ranks: int, seconds: Callable[[int], float | None], *, pinned: bool) -> int:
    """Copies of a server of so many ranks: those under which a completion takes least, generated and trained on.

    `seconds` of a completion under so many copies; None where no training fits beside them. trl 1.16,
    scripts/vllm_serve.py: data_parallel_size. Powers of two are tried: each takes a capture of its own.
    """
    most = (cluster.world_size - 1) // ranks
    tried = [copies for copies in _DEGREES if copies <= most]
    if pinned or len(tried) < 2:
        return 1
    known = [(found, copies) for copies in tried if (found := seconds(copies)) is not None]
    return min(known)[1] if known else 1


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


def engine_for(given: RecipeGiven, cluster: Cluster, beside: Engines, taken: int) -> Callable[[int], Engine]:
    """The engine by completions of one rank, as the trainer would make it; `taken`: devices of a server."""
    asked = given.engine
    assert asked is not None
    if asked.mode == "server":
        server = beside.on(taken, server_ranks(asked, cluster, beside), None)
        return lambda completions: server
    ranks = asked.tensor_parallel or 1

    @cache
    def colocated(completions: int) -> Engine:
        # max_num_seqs: what the ranks of one copy generate together.
        return beside.on(cluster.world_size, ranks, completions * ranks)

    colocated(given.micro_batch)
    return colocated
