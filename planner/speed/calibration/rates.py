"""A calibration's figures as the rates that the speed model asks for."""

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.calibration.record import Bounds, Calibration
from gpu_plan.planner.speed.rates import Rate
from gpu_plan.planner.trace.events import FloatArray

MEASURED_HERE = "measured here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How the rate of a product grows with its size, as a share of that of large ones."""

    log_flops: FloatArray
    share: FloatArray

    def at(self, flops: FloatArray) -> FloatArray:
        """Shares of products of these FLOP, between the sizes measured and flat beyond them."""
        log = np.log(np.maximum(flops, 1.0))
        return np.asarray(np.interp(log, self.log_flops, self.share), dtype=np.float64)


def _rate(bounds: Bounds, what: str, factor: float = 1.0) -> Rate:
    slow, expected, fast = (value * factor for value in bounds)
    return Rate(slow=slow, expected=expected, fast=fast, basis="measured", note=f"{what}: {MEASURED_HERE}")


def _dtype(dtype: str) -> str:
    return "float32" if dtype == "tf32" else dtype


def product_rate(record: Calibration, dtype: str) -> tuple[Rate, Sizes] | None:
    """FLOP/s of the largest products of a type, and what smaller ones reach of it; None where none was measured."""
    rows = sorted((row for row in record.products if row.dtype == _dtype(dtype)), key=lambda row: row.flops)
    if not rows:
        return None
    from statistics import median  # three milliseconds, where something was measured

    top = rows[-1].rate
    spread_slow = median(row.rate[0] / row.rate[1] for row in rows)
    spread_fast = median(row.rate[2] / row.rate[1] for row in rows)
    rate = _rate((top[1] * spread_slow, top[1], top[1] * spread_fast), "matrix products")
    sizes = Sizes(
        log_flops=np.log(np.array([row.flops for row in rows])),
        share=np.array([row.rate[1] / top[1] for row in rows]),
    )
    return rate, sizes


def attention_rate(record: Calibration, dtype: str, direction: str) -> Rate | None:
    """FLOP/s of fused attention; None where none was measured."""
    for row in record.attention:
        if row.dtype == _dtype(dtype) and row.direction == direction:
            return _rate(row.rate, f"attention {direction}")
    return None


def memory_rate_here(record: Calibration) -> Rate:
    """Bytes per second."""
    return _rate(record.memory, "memory traffic")


def operator_seconds_here(record: Calibration) -> Rate:
    """Seconds from one operator to the next, as a duration."""
    return _rate(record.operator_seconds, "the host's time for an operator")


def exchange_seconds(record: Calibration, kind: str, ranks: int, num_bytes: float) -> Rate | None:
    """Seconds of a collective inside this machine; None where none like it was measured.

    Among other numbers of ranks it takes what those measured took: rings of one machine share its memory.
    """
    rows = [row for row in record.exchanges if row.kind == kind]
    if not rows:
        return None
    nearest = min({row.ranks for row in rows}, key=lambda known: (abs(known - ranks), known))
    points = sorted((row for row in rows if row.ranks == nearest), key=lambda row: row.num_bytes)
    log_bytes = np.log([row.num_bytes for row in points])
    at = float(np.log(max(num_bytes, 1.0)))
    beyond = max(0.0, at - float(log_bytes[-1]))
    slow, expected, fast = (
        float(np.exp(np.interp(at, log_bytes, np.log(np.maximum.accumulate(column))) + beyond))
        for column in zip(*(row.seconds for row in points), strict=True)
    )
    return Rate(slow=slow, expected=expected, fast=fast, basis="measured", note=f"collectives: {MEASURED_HERE}")
