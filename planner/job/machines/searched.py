"""Machines are compared by their simplest plans; those that might come first by all of their plans."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.job.machines.figures import Fitted, fitted
from gpu_plan.planner.job.machines.missing import keeps
from gpu_plan.planner.job.machines.orders import order_of
from gpu_plan.planner.options.wishes.read import Wishes
from gpu_plan.planner.plan.machines import Machine
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.workload.prefer import Prefer


def searched(machines: Sequence[Fitted], wishes: Wishes) -> list[Fitted]:
    """The same machines, with their best plan where that might put them first.

    By proved bounds: whatever is left with its simplest plan comes after the first, or does not keep to budget and
    deadline, even if it did nothing but compute.
    """
    order = order_of(wishes)
    found = list(machines)
    at_best = {one.machine.spec: one if one.searched else _at_best(one) for one in machines}
    while True:
        leader = min((one for one in found if keeps(one.machine, wishes)), key=order, default=None)
        left = [
            at_best[one.machine.spec]
            for one in found
            if not one.searched and keeps(at_best[one.machine.spec].machine, wishes)
        ]
        left = [one for one in left if leader is None or order(one) < order(leader)]
        if not left:
            return found
        found = _with_all_plans(found, min(left, key=order), wishes)


def _with_all_plans(machines: Sequence[Fitted], first: Fitted, wishes: Wishes) -> list[Fitted]:
    """After a search on `first`, whose plans serve all machines of its kind that have the memory for them."""
    best = _found(first, wishes)
    return [
        fitted(one.cluster, first.job, best if _can_run(one, best) else one.best, wishes, searched=True)
        if one.kind == first.kind and (_can_run(one, best) or one.machine.spec == first.machine.spec)
        else one
        for one in machines
    ]


def _found(first: Fitted, wishes: Wishes) -> Judgement:
    """The best plan, the simplest where the search has none that is better; the fastest where the best does not keep to
    budget and deadline."""
    try:
        best = search(first.job.task, prefer=wishes.prefer).best or first.best
        if keeps(fitted(first.cluster, first.job, best, wishes, searched=True).machine, wishes):
            return best
        return search(first.job.task, prefer=Prefer.SPEED).best or best
    except CannotSplitError:
        return first.best


def _can_run(one: Fitted, best: Judgement) -> bool:
    known = one.cluster.host_ram_bytes
    return known is None or best.needed_host_bytes <= known


def _at_best(one: Fitted) -> Fitted:
    """A machine as fast as it could be."""
    task = one.job.task
    assert isinstance(task, TrainingTask), "a generation is not compared over machines"
    share = min(1.0, task.least_seconds() * one.machine.samples_per_second)
    return replace(one, machine=_faster(one.machine, share))


def _faster(machine: Machine, share: float) -> Machine:
    """With `share` of its seconds."""
    job, each = machine.job, machine.usd_per_million_tokens
    if job is not None:
        usd = None if job.usd is None else share * job.usd
        job = replace(job, hours=share * job.hours, gpu_hours=share * job.gpu_hours, usd=usd)
    return replace(
        machine,
        samples_per_second=machine.samples_per_second / share,
        usd_per_million_tokens=None if each is None else share * each,
        job=job,
    )
