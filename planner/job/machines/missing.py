"""What it would take where no machine keeps to the budget and the deadline."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.job.alternatives import at_its_batch
from gpu_plan.planner.job.machines.figures import Fitted, machine_of
from gpu_plan.planner.job.machines.orders import by_speed
from gpu_plan.planner.options.wishes.read import Wishes
from gpu_plan.planner.plan.machines import Machine
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.units import format_count, format_dollars, format_hours

_DOUBLINGS = 6
"""Of the fastest machine, looking for one that is in time."""


def keeps(machine: Machine, wishes: Wishes) -> bool:
    """Whether it keeps to the budget and the deadline; without a price nothing is known of a budget."""
    if machine.job is None:
        return True
    if wishes.budget is not None and (machine.job.usd is None or machine.job.usd > wishes.budget):
        return False
    return wishes.deadline_seconds is None or machine.job.hours * 3600 <= wishes.deadline_seconds


def in_time_of(found: Sequence[Fitted], wishes: Wishes) -> Machine | None:
    """The fastest machine so many times over that the job ends in time: twice as many nodes until it does."""
    if wishes.deadline_seconds is None or wishes.tokens is None or not found:
        return None
    fastest = min(found, key=by_speed)
    job, cluster = fastest.job, fastest.cluster
    for _ in range(_DOUBLINGS):
        try:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
            best = at_its_batch(job.task.on(cluster))
        except (InputError, CannotSplitError):
            return None
        if best is None:
            return None
        machine = machine_of(cluster, replace(job, task=job.task.on(cluster)), best, wishes)
        if machine.job is not None and machine.job.hours * 3600 <= wishes.deadline_seconds:
            return machine
    return None


def missing(machines: Sequence[Machine], wishes: Wishes, in_time: Machine | None) -> str:
    """What it would take, in words: the cheapest, the fastest, and more of the fastest."""
    jobs = [(one.spec, one.job) for one in machines if one.job is not None]
    priced = [(spec, job.usd, job.hours) for spec, job in jobs if job.usd is not None]
    cheapest = min(priced, key=lambda one: one[1], default=None)
    fastest_spec, fastest = min(jobs, key=lambda one: one[1].hours)
    within = [one for one in priced if wishes.deadline_seconds is None or one[2] * 3600 <= wishes.deadline_seconds]
    quick = min(within, key=lambda one: one[1], default=None)
    asked = [] if wishes.budget is None else [f"the budget of {format_dollars(wishes.budget)}"]
    if wishes.deadline_seconds is not None:
        asked.append(f"the deadline of {format_hours(wishes.deadline_seconds / 3600)}")
    pieces = [f"no machine keeps to {' and '.join(asked)}"]
    if cheapest is not None:
        costs = f"costs {format_dollars(cheapest[1])} and takes {format_hours(cheapest[2])}"
        pieces.append(f"the cheapest, {cheapest[0]}, {costs}")
    elif wishes.budget is not None:
        pieces.append("nobody printed a price for any of them (--price gives one)")
    if wishes.deadline_seconds is not None:
        if quick is not None:
            pieces.append(f"the cheapest that is in time, {quick[0]}, costs {format_dollars(quick[1])}")
        else:
            pieces.append(f"the fastest, {fastest_spec}, takes {format_hours(fastest.hours)}")
        if in_time is not None and in_time.job is not None and fastest.hours * 3600 > wishes.deadline_seconds:
            cost = "" if in_time.job.usd is None else f" and {format_dollars(in_time.job.usd)}"
            pieces.append(f"{in_time.spec} would take {format_hours(in_time.job.hours)}{cost}")
    if wishes.budget is not None and cheapest is not None and cheapest[1] > wishes.budget and wishes.tokens:
        paid = format_count(round(wishes.tokens * wishes.budget / cheapest[1]))
        pieces.append(f"the budget pays for {paid} of {format_count(wishes.tokens)} tokens there")
    return f"{pieces[0]}: {'; '.join(pieces[1:])}"
