"""What a plan costs, from its speed and what others rent the device for. Never invented: no price, no cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.planner.units import format_dollars

BILLION, MILLION = 10**9, 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One published price, and what it makes of a plan; US dollars."""

    provider: str
    date: str
    source: str
    device_hour: float
    job_hour: float
    """All devices for an hour."""
    per_unit: float | None
    """A billion tokens, or a million samples where there are none; None where the speed is unknown."""
    low: float | None
    high: float | None


def unit_words(document: PlanDocument) -> str:
    """What `CostLine.per_unit` is counted in."""
    if document.workload.get("task") == "infer":
        return "million new tokens (decode alone)"
    return "billion tokens" if document.model.has_sequence else "million samples"


def cost_lines(document: PlanDocument, candidate: Candidate) -> list[CostLine]:
    """A line for each published price, cheapest first; empty where there is none."""
    gpus = _whole(document.cluster, "gpus")
    seconds = _seconds_per_unit(document, candidate, gpus)
    lines = []
    for price in document.prices:
        job_hour = price.usd_per_hour * gpus
        low, middle, high = (None if value is None else value / 3600 * job_hour for value in seconds)
        lines.append(
            CostLine(
                provider=price.provider,
                date=price.date,
                source=price.source,
                device_hour=price.usd_per_hour,
                job_hour=job_hour,
                per_unit=middle,
                low=low,
                high=high,
            )
        )
    return lines


def dollars(value: float | None) -> str:
    """`$1,234`, `$12.30`, `$0.0042`."""
    return "-" if value is None else format_dollars(value)


def _seconds_per_unit(
    document: PlanDocument, candidate: Candidate, gpus: int
) -> tuple[float | None, float | None, float | None]:
    speed = candidate.speed
    if speed is None:
        return None, None, None
    tokens = speed.tokens_per_second_per_gpu
    rate = speed.samples_per_second if tokens is None else tokens * gpus
    if not rate:
        return None, None, None
    generated = document.workload.get("task") == "infer"
    middle = (MILLION if tokens is None or generated else BILLION) / rate
    return (
        middle * speed.step_seconds_low / speed.step_seconds,
        middle,
        middle * speed.step_seconds_high / speed.step_seconds,
    )


def _whole(section: Mapping[str, object], key: str) -> int:
    value = section[key]
    assert isinstance(value, int)  # the document has checked it
    return value
