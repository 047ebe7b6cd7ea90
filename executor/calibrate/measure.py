"""A whole calibration of this machine."""

from collections.abc import Callable
from datetime import UTC, datetime

import torch

from gpu_plan.executor.calibrate.exchange import exchanges
from gpu_plan.executor.calibrate.operators import attention, memory, operator_seconds, products
from gpu_plan.executor.calibrate.transfers import disk, host_copy
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.speed.calibration.machine import this_machine
from gpu_plan.planner.speed.calibration.record import Calibration

FULL_SECONDS, QUICK_SECONDS = 90.0, 10.0


def measure(cluster: Cluster, *, quick: bool, tell: Callable[[str], None]) -> Calibration:
    """Everything about the devices of `cluster`, which is this machine, in about two minutes; `quick`: in a quarter of
    one, with fewer repetitions and without collectives. `tell` is given one line for each part."""
    device = torch.device("cpu" if cluster.gpu.is_cpu else "cuda")
    budget = QUICK_SECONDS if quick else FULL_SECONDS
    tell("products, in the layouts of a training step")
    made = tuple(products(device, 0.5 * budget))
    tell("attention, forward and backward")
    fused = tuple(attention(device, 0.2 * budget))
    tell("memory, small operators")
    traffic, small = memory(device, 0.1 * budget), operator_seconds(device, 0.1 * budget)
    tell("copies and files")
    copied, (written, read) = host_copy(device, 0.05 * budget), disk()
    ranks = 0 if quick else 2 if device.type == "cpu" else cluster.gpus_per_node
    if ranks > 1:
        tell(f"collectives among {ranks} processes")
    return Calibration(
        machine=this_machine(cluster),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        torch=torch.__version__,
        products=made,
        attention=fused,
        memory=traffic,
        operator_seconds=small,
        host_copy=copied,
        disk_write=written,
        disk_read=read,
        exchanges=exchanges(ranks, device.type),
    )
