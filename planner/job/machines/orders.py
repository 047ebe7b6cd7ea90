"""Which machine comes first."""

import math
from collections.abc import Callable

from gpu_plan.planner.job.machines.figures import Fitted
from gpu_plan.planner.options.wishes.read import Wishes
from gpu_plan.planner.workload.prefer import Prefer

Order = Callable[[Fitted], tuple[float, float, str]]


def order_of(wishes: Wishes) -> Order:
    """What comes first: the smallest unless something else is preferred, which the smallest of its equals wins.

    Where a budget is given the cheapest does.
    """
    return _cost if wishes.budget is not None and wishes.prefer is Prefer.BALANCE else _ORDERS[wishes.prefer]


def _size(one: Fitted) -> tuple[float, float, str]:
    return (one.size, one.machine.usd_per_hour or float("inf"), one.machine.spec)


def _cost(one: Fitted) -> tuple[float, float, str]:
    cost = one.machine.usd_per_million_tokens
    return (float("inf") if cost is None else cost, one.size, one.machine.spec)


def by_speed(one: Fitted) -> tuple[float, float, str]:
    """The fastest first."""
    return (-one.machine.samples_per_second, one.size, one.machine.spec)


def _parts(one: Fitted) -> tuple[float, float, str]:
    return (one.best.moving_parts, one.size, one.machine.spec)


def _room(one: Fitted) -> tuple[float, float, str]:
    """By tenths of the device that stay free: less is noise."""
    used = one.machine.device_used_bytes / one.machine.capacity_bytes
    return (math.ceil(10 * used), one.size, one.machine.spec)


_ORDERS: dict[Prefer, Callable[[Fitted], tuple[float, float, str]]] = {
    Prefer.BALANCE: _size,
    Prefer.SPEED: by_speed,
    Prefer.MEMORY: _room,
    Prefer.COST: _cost,
    Prefer.SIMPLE: _parts,
}
