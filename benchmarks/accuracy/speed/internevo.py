"""InternEvo's own ZeRO-1, as the runs of its performance page had it, out of DeepSpeed's.

Its hooks reduce gradients while backward runs, in buckets of 512 Mi elements over all data parallel ranks; each rank
then sends what it stepped to the others that share its optimizer state (InternLM/InternEvo configs/7B_sft.py:
hybrid_zero_optimizer; internlm/solver/optimizer/hybrid_zero_optim.py: _attach_reduction_hook,
_store_and_try_reduce_grads_by_bucket, _partition_param_list, broadcast_params).
"""

import re
from dataclasses import replace

from benchmarks.accuracy.row import Row, text
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.kinds.zero1 import Zero1

SETTINGS = {"zero.overlap_comm": "true", "zero.reduce_bucket_size": str(512 * 2**20)}
_GROUP = re.compile(r"ZeRO-1 group (?P<ranks>-?[0-9]+)")


class InternEvoZero1(Zero1):
    """ZeRO-1 whose optimizer state `sharing` ranks share, those of a node first; all of them where it is None."""

    def __init__(self, sharing: int | None) -> None:
        self.sharing = sharing

    def rank(self, context: RankContext) -> RankPlan:
        plan = super().rank(context)
        sharing = min(self.sharing or context.world_size, context.world_size)
        sent = tuple(_sent(one, sharing, len(context.trace.parameters)) for one in plan.collectives)
        elements = plan.optimizer_work.elements
        if self.sharing is None or self.sharing >= context.world_size:
            return replace(plan, collectives=sent)
        more = context.world_size / self.sharing
        work = replace(
            plan.optimizer_work,
            elements=int(elements * more),
            parameter_bytes_read_written=int(plan.optimizer_work.parameter_bytes_read_written * more),
        )
        return replace(plan, collectives=sent, optimizer_work=work)


def _sent(one: Collective, sharing: int, parameters: int) -> Collective:
    """A parameter is of one rank, whole; every rank that has some sends them by a broadcast of its own."""
    if one.kind != "all_gather":
        return one
    senders = max(1, min(sharing, parameters))
    return replace(one, kind="broadcast", bytes=one.bytes // senders, count=senders, ranks=sharing)


def zero1_of(row: Row) -> InternEvoZero1:
    """By how many ranks share the optimizer's state: `ZeRO-1 group 8`, -1 for all."""
    told = _GROUP.search(text(row, "strategy"))
    ranks = int(told["ranks"]) if told else -1
    return InternEvoZero1(ranks if ranks > 0 else None)
