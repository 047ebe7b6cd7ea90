"""How far the host of one rank can be ahead of its device, by the seconds that its step is told to take."""

from typing import cast

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.lead.pace import Pace, Paces
from gpu_plan.planner.speed.device import FAST, SLOW
from gpu_plan.planner.speed.model import CollectiveKind, KernelTimes, SpeedModel, StepWork
from gpu_plan.planner.trace.events import IntArray, Kind

_MOST, _LEAST = (FAST, SLOW), (SLOW, FAST)
"""Host and device, where the host is furthest ahead and where it is least."""


def paces_of(speed: SpeedModel, work: StepWork, cluster: Cluster) -> Paces | None:
    """Both bounds, each with fast and with slow links; None where the step's seconds are not known well enough."""
    times = speed.kernel_times(work, cluster)
    order = work.trace.subject[work.trace.kind == Kind.OPERATOR]
    if times is None or not len(order) or int(order.max()) >= times.device.shape[1]:
        return None

    def paces(host: int, device: int) -> tuple[Pace, ...]:
        return tuple(_pace(times, order, host, device, links) for links in (SLOW, FAST))

    return Paces(least=paces(*_LEAST), most=paces(*_MOST))


def _pace(times: KernelTimes, order: IntArray, host: int, device: int, links: int) -> Pace:
    return Pace(
        host=np.full(len(order), times.issue[host]),
        device=times.device[device][order],
        hook=times.issue[host],
        many_hooks=host == SLOW,
        sent=lambda what, nbytes: times.sent(cast("CollectiveKind", what), nbytes)[links],
    )
