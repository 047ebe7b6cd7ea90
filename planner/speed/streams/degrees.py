"""What each degree sends in a step, and how long the step waits for it."""

from collections.abc import Callable

from gpu_plan.planner.speed.model import HOST_KINDS, Axis, AxisTime, StepWork
from gpu_plan.planner.speed.streams.overlap import Transfer

_ORDER: tuple[Axis, ...] = ("tensor", "expert", "context", "data", "replicas", "host")


def axis_times(
    work: StepWork, transfers: list[Transfer], bound: int, exposed: Callable[[list[Transfer]], float]
) -> tuple[AxisTime, ...]:
    """One entry for each degree that sends, those within a layer first.

    `exposed`: seconds by which so many transfers prolong a step. A degree's own are what the step would be shorter by
    without it: transfers that hide behind the same computation share it, so the parts need not sum to the whole.
    """
    whole = exposed(transfers)
    return tuple(_time(axis, work, transfers, bound, whole, exposed) for axis in _ORDER if _of(axis, transfers))


def _of(axis: Axis, transfers: list[Transfer]) -> list[Transfer]:
    return [one for one in transfers if _axis(one) == axis]


def _axis(transfer: Transfer) -> Axis:
    return "host" if transfer.collective.kind in HOST_KINDS else transfer.collective.axis


def _time(
    axis: Axis,
    work: StepWork,
    transfers: list[Transfer],
    bound: int,
    whole: float,
    exposed: Callable[[list[Transfer]], float],
) -> AxisTime:
    mine = _of(axis, transfers)
    others = [one for one in transfers if _axis(one) != axis]
    times = [_repeated(one, work) for one in mine]
    groups = [one.collective.ranks for one in mine]
    return AxisTime(
        axis=axis,
        ranks=None if axis == "host" or None in groups else max(ranks for ranks in groups if ranks is not None),
        calls=sum(one.collective.count * count for one, count in zip(mine, times, strict=True)),
        bytes=sum(one.collective.bytes * one.collective.count * n for one, n in zip(mine, times, strict=True)),
        seconds=sum(one.seconds[bound] * count for one, count in zip(mine, times, strict=True)),
        exposed_seconds=max(0.0, whole - exposed(others)),
    )


def _repeated(transfer: Transfer, work: StepWork) -> int:
    """How often in a step: once in each micro step, or once."""
    one = transfer.collective
    return work.accumulation_steps if one.per == "micro_step" and one.phase != "step" else 1
