"""DistributedDataParallel: a replica per rank, gradients averaged in buckets.

Mirrors torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp: initialize_buckets,
rebuild_buckets, compute_bucket_assignment_by_size.
"""

from planner.memory.stream import StreamBuilder
from planner.speed.model import Collective
from planner.strategy.base import Offload, RankContext, RankPlan, autocast_regime, nbytes
from planner.strategy.single import place_replica
from planner.trace.events import Category
from planner.trace.variant import Regime
from planner.workload import Precision, Stack

FIRST_BUCKET = 1024 * 1024
BUCKET = 25 * 1024 * 1024


class DistributedDataParallel:
    """torch's DDP as accelerate wraps it: gradients are not bucket views unless asked for."""

    name = "ddp"
    title = "DDP"
    zero_stage: int | None = None
    offloads: tuple[Offload, ...] = (Offload.NONE,)

    def regime(self, precision: Precision, stack: Stack) -> Regime:
        return autocast_regime(precision, stack)

    def refuses(self, context: RankContext) -> str | None:
        return "there is only one GPU" if context.world_size == 1 else None

    def rank(self, context: RankContext) -> RankPlan:
        builder = StreamBuilder(context.trace, context.accumulation_steps)
        dtype = autocast_regime(context.precision, context.stack).weights
        sizes = [nbytes(p.numel, dtype) for p in context.trace.parameters if p.trainable]
        buckets = bucket_sizes(list(reversed(sizes)))
        for size in buckets:
            builder.alloc(builder.at_load(), size, Category.COMMUNICATION, "DDP bucket")
        work = place_replica(builder, context)
        reduce = tuple(
            Collective(kind="all_reduce", bytes=size, count=1, overlap=True, phase="backward", per="step")
            for size in buckets
        )
        return RankPlan(stream=builder.build(), collectives=reduce, optimizer_work=work)


def bucket_sizes(sizes: list[int], first: int = FIRST_BUCKET, limit: int = BUCKET) -> list[int]:
    """Bytes of each bucket for gradients in the order in which they become ready.

    reducer.cpp: compute_bucket_assignment_by_size closes a bucket once it has reached its limit.
    """
    buckets: list[int] = []
    current, bound = 0, first
    for size in sizes:
        current += size
        if current >= bound:
            buckets.append(current)
            current, bound = 0, limit
    if current:
        buckets.append(current)
    return buckets
