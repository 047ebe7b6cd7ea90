"""DistributedDataParallel's buckets: a replica per rank, gradients averaged in pieces.

Mirrors torch/nn/parallel/distributed.py (torch 2.13: compute_bucket_size_limits, _pre_forward) and
torch/csrc/distributed/c10d/reducer.cpp: initialize_buckets, rebuild_buckets, compute_bucket_assignment_by_size,
mark_variable_ready_dense.
"""

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, nbytes, replica_regime
from gpu_plan.planner.strategy.optimizer_step import with_paged_state
from gpu_plan.planner.strategy.replica import place_replica, replica_tensors
from gpu_plan.planner.trace.events import Category, Mark

# torch/csrc/distributed/c10d/reducer.hpp: kDefaultFirstBucketBytes, small so that the first all-reduce begins early;
# kDefaultBucketBytesCap.
FIRST_BUCKET = 1024 * 1024
BUCKET = 25 * 1024 * 1024

_REDUCING = (1, 1)
"""Operators of one bucket's all-reduce, fewest and most, counted in a run of torch 2.13's own reducer
(tests/trace/test_hooks_issued.py): the all-reduce."""
_ARRIVING = (2, 3)
"""The same of every gradient: into the bucket as it is divided, and back; a view of its place."""
_ARRIVING_AS_VIEW = (1, 2)

_VIEWS = "gradients are views of the buckets: DistributedDataParallelKwargs(gradient_as_bucket_view=True) in the script"


def bucketed_rank(context: RankContext) -> RankPlan:
    """One replica's plan, its gradients averaged in buckets."""
    builder = StreamBuilder(context.trace, context.accumulation_steps)
    dtype = replica_regime(context).trained
    views = context.setting("ddp.gradient_as_bucket_view", "false") == "true"
    work = place_replica(builder, context, keep=not views)
    if views:
        view_gradients(builder)
    buckets = place_buckets(builder, dtype)
    reduce = tuple(
        Collective(
            kind="all_reduce",
            bytes=sum(sizes),
            overlap=True,
            phase="backward",
            per="step",
            issued=_issued(len(sizes), views=views),
        )
        for sizes in buckets
    )
    notes = (*_unused(builder), *((_VIEWS,) if views else ()))
    plan = RankPlan(stream=builder.build(), collectives=reduce, optimizer_work=work, notes=notes)
    return with_paged_state(plan, context, replica_tensors(context))


def _issued(gradients: int, *, views: bool) -> tuple[int, int]:
    each = _ARRIVING_AS_VIEW if views else _ARRIVING
    return _REDUCING[0] + each[0] * gradients, _REDUCING[1] + each[1] * gradients


def place_buckets(builder: StreamBuilder, dtype: str) -> list[list[int]]:
    """One bucket over all gradients at first, then those of the order in which gradients came; returns the bytes of
    the gradients of each.

    compute_bucket_size_limits sets no limit before the first backward pass (unused parameters are not looked for).
    The second iteration's forward rebuilds: the reducer drops what it has before it makes the new buckets.
    """
    end = builder.trace.num_events
    trained = [index for index, parameter in enumerate(builder.trace.parameters) if parameter.trainable]
    came = {index: end if (event := builder.gradient_event(index)) is None else event for index in trained}
    order = sorted(reversed(trained), key=came.__getitem__)
    buckets = in_buckets([nbytes(builder.trace.parameters[index].numel, dtype) for index in order])
    whole = builder.alloc(builder.at_load(), sum(map(sum, buckets)), Category.COMMUNICATION, "DDP bucket")
    second = next(in_pass for in_pass in builder.passes if in_pass.iteration == 1)
    at = builder.at_mark(second, Mark.FORWARD)
    builder.free(at, whole)
    for sizes in buckets:
        builder.alloc(at, sum(sizes), Category.COMMUNICATION, "DDP bucket")
    return buckets


def view_gradients(builder: StreamBuilder) -> None:
    """With gradient_as_bucket_view a gradient is copied into its bucket and let go as soon as it is complete.

    mark_variable_ready_dense copies and rebinds because zero_grad has set the gradient of the step before to None.
    Without synchronisation its hook does nothing: the first micro step's gradients stand whole until the last one's
    are added to them.
    """
    for in_pass in builder.passes:
        first = next(other for other in builder.passes if other.iteration == in_pass.iteration)
        for index, parameter in enumerate(builder.trace.parameters):
            event = builder.gradient_event(index)
            if event is None or not parameter.trainable:
                continue
            at = builder.after(in_pass, event)
            if in_pass.micro_step > 0:
                builder.free_gradient(at, in_pass, index)
            if in_pass.last:
                builder.free_gradient(at, first, index)


def _unused(builder: StreamBuilder) -> tuple[str, ...]:
    """reducer.cpp: ensure_prior_reduction_finished raises when a parameter never became ready."""
    names = [
        parameter.name
        for index, parameter in enumerate(builder.trace.parameters)
        if parameter.trainable and builder.gradient_event(index) is None
    ]
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (f"DDP needs find_unused_parameters=True: {names[0]}{more} get no gradient",)


def in_buckets(sizes: list[int], first: int = FIRST_BUCKET, limit: int = BUCKET) -> list[list[int]]:
    """Bytes of the gradients of each bucket, given in the order in which they become ready.

    reducer.cpp: compute_bucket_assignment_by_size closes a bucket once it has reached its limit.
    """
    buckets: list[list[int]] = []
    current: list[int] = []
    held, bound = 0, first
    for size in sizes:
        current.append(size)
        held += size
        if held >= bound:
            buckets.append(current)
            current, held, bound = [], 0, limit
    if current:
        buckets.append(current)
    return buckets
