"""What a power limit below the device's own leaves of its arithmetic.

Under load the clock settles where the power does; how steeply differs by chip, so it is taken from chips that are sold
with several limits and were measured with the same kind of product (efficiency.toml: power). Memory keeps its clock.
"""

import functools
import math

from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed.rates import Rate, efficiency_data
from gpu_plan.planner.units import median


@functools.cache
def power_exponents() -> tuple[float, float, float]:
    """Least, median and greatest d log(rate) / d log(power) of one chip under two limits, per multiprocessor."""
    best = {
        row["gpu"]: row["tflops"]
        for row in efficiency_data()["matmul"]
        if row["kind"] == "best" and row["dtype"] == "bfloat16"
    }
    gpus = load_gpus()
    found = []
    for row in efficiency_data()["power"]:
        more, less = gpus[row["more"]], gpus[row["less"]]
        # Half a chip takes half the power: what counts is the power of one multiprocessor, where both are known.
        parts = [gpu.sm_count or 1 for gpu in (more, less)] if more.sm_count and less.sm_count else [1, 1]
        watts = [(gpu.tdp_watts or 0) / part for gpu, part in zip((more, less), parts, strict=True)]
        rates = [best[gpu.id] / part for gpu, part in zip((more, less), parts, strict=True)]
        found.append(math.log(rates[0] / rates[1]) / math.log(watts[0] / watts[1]))
    return min(found), median(found), max(found)


def limited(rate: Rate, gpu: Gpu, watts: float | None) -> Rate:
    """A rate of arithmetic under a limit; itself where there is none, or the device's own is not known."""
    if watts is None or gpu.tdp_watts is None or watts >= gpu.tdp_watts:
        return rate
    least, usual, most = power_exponents()
    share = watts / gpu.tdp_watts
    return Rate(
        slow=rate.slow * share**most,
        expected=rate.expected * share**usual,
        fast=rate.fast * share**least,
        basis="source" if rate.basis == "measured" else rate.basis,
        note=f"{rate.note}; {share**usual:.0%} of that at {watts:g} of {gpu.tdp_watts:g} W",
    )
