"""ZeRO-3's plan of a rank, with as many swap buffers as the order of its modules takes.

Mirrors deepspeed/runtime/swap_tensor/partitioned_param_swapper.py: swap_in, which asserts that there are enough.
"""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero.stage3.nvme import PARAMETER_BUFFERS, too_small
from gpu_plan.planner.strategy.zero.stage3.rank import Stage3
from gpu_plan.planner.strategy.zero.stage3.swap import SwapError


def preparing(context: RankContext) -> Iterator[None]:
    """What takes longest of `rank_plan`, before anybody asks: piece by piece, and kept."""
    count = int(dict(context.settings).get("zero.param_buffer_count") or PARAMETER_BUFFERS)
    while True:
        try:
            yield from Stage3(context, buffers=count).walking()
            return
        except SwapError as error:
            context, count = _otherwise(context, count, error)


def _otherwise(context: RankContext, count: int, error: SwapError) -> tuple[RankContext, int]:
    """What is tried next where buffers did not do: none read ahead, or more of them."""
    if error.needed is None:
        return replace(context, settings=tuple((dict(context.settings) | dict((_NONE_AHEAD,))).items())), count
    return context, max(count + 1, error.needed)


_NONE_AHEAD = ("zero.prefetch_bucket_size", "0")
_TWICE = (
    "DeepSpeed 0.19.8 reads a weight that is used twice in a row into two buffers, and fails: --set"
    " zero.prefetch_bucket_size=0 turns reading ahead off"
)


def rank_plan(context: RankContext) -> RankPlan:
    """The plan of any rank under stage 3.

    Parameters on NVMe pass through as few buffers as the order of modules allows, but no fewer than DeepSpeed's own
    number; where it would read a weight twice at once it is told to read none ahead. What was given is not changed:
    where that does not do, the plan says that the run dies.
    """
    if context.offload is not Offload.NVME:
        return Stage3(context).plan()
    asked = dict(context.settings)
    given = asked.get("zero.param_buffer_count")
    count, problem = int(given or PARAMETER_BUFFERS), ""
    chosen: tuple[tuple[str, str], ...] = ()
    while True:
        stage = Stage3(context, buffers=count)
        problem = problem or too_small(context, stage.parts, stage.dtype) or ""
        try:
            plan = stage.plan()
            return replace(plan, failure_reason=problem, chosen=(*plan.chosen, *chosen))
        except SwapError as error:
            if error.needed is None:
                if "zero.prefetch_bucket_size" in asked:
                    problem = problem or _TWICE
                chosen = (_NONE_AHEAD,)
            context, count = _otherwise(context, count, error)
            if given and error.needed is not None:
                problem = f"DeepSpeed runs out of swap buffers with zero.param_buffer_count={given}: give it {count}"
