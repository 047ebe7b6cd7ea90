"""Changes that every task knows when nothing fits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from gpu_plan.planner.workload.generation import InferWorkload
from gpu_plan.planner.workload.training import Workload

ANOTHER_STRATEGY = "another --strategy"
"""Whichever fits: what it is, its evaluation tells."""

AnyWorkload = TypeVar("AnyWorkload", Workload, InferWorkload)


def without(workload: AnyWorkload, key: str) -> AnyWorkload:
    """The same job without a `--set` key."""
    return replace(workload, settings=tuple(pair for pair in workload.settings if pair[0] != key))


def without_reserve(workload: AnyWorkload) -> Iterator[tuple[str, AnyWorkload]]:
    """Nothing kept free for others."""
    if workload.reserve_bytes:
        yield "without --set memory.reserve it", without(workload, "memory.reserve")
