"""Machines on which a job fits, as `plan MODEL` without --gpus tells them; plain values only."""

from dataclasses import dataclass

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.figures import JobFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine, and a plan that fits it."""

    spec: str
    gpus: int
    capacity_bytes: int
    """Of one device."""
    host_ram_bytes: int | None
    """Of one node; None where it is not known."""
    plan: str
    device_used_bytes: int
    host_bytes_per_node: int
    samples_per_second: float
    """Of all devices together."""
    tokens_per_second: float | None
    """Likewise; None for models without a sequence."""
    usd_per_hour: float | None = None
    """Of the whole machine; None where nobody printed a price."""
    price_provider: str | None = None
    price_date: str | None = None
    price_source: str | None = None
    usd_per_million_tokens: float | None = None
    """Of a million samples where there are no tokens."""
    job: JobFigures | None = None
    all_plans: bool = False
    """Whether the plan is the best of all; otherwise it is the simplest that fits, at its best batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesDocument:
    """All machines on which a job fits, smallest first unless cost was asked for."""

    schema_version: int = 1
    command: str
    model: str
    parameters: int
    job: tuple[str, ...]
    """What is run, in words."""
    machines: tuple[Machine, ...]
    too_small: tuple[str, ...]
    """Machines on which nothing fits."""
    passed_over: tuple[str, ...] = ()
    """Machines that fit and do not keep to the budget or the deadline."""
    note: str | None = None
    """Where no machine keeps to them: what it would take."""


def machines_to_json(document: MachinesDocument) -> str:
    """As JSON, without a final newline."""
    return dump(document)
