"""Changes of a generation that may make it fit, the smallest first."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.search.changes import ANOTHER_STRATEGY, without_reserve
from gpu_plan.planner.workload.generation import CacheType, InferWorkload

_LEAST_CONTEXT = 512
"""Tokens below which a shorter context is no suggestion."""


def relaxed(workload: InferWorkload, encoder_decoder: bool) -> Iterator[tuple[str, InferWorkload]]:
    """The job with less asked of it, in words."""
    yield from without_reserve(workload)
    for batch in _halved(workload.batch, 1):
        yield f"--batch {batch}", replace(workload, batch=batch)
    if workload.kv_dtype is CacheType.AUTO and not encoder_decoder:
        yield "--kv-dtype fp8", replace(workload, kv_dtype=CacheType.FP8)
    for context in _halved(workload.context, max(_LEAST_CONTEXT, workload.new_tokens) + 1):
        yield f"--context {context}", replace(workload, context=context)
    if workload.offload == "none":
        yield "--offload all", replace(workload, offload="all", strategy=None)
    if workload.strategy is not None:
        yield ANOTHER_STRATEGY, replace(workload, strategy=None, tensor_parallel=None, pipeline_parallel=None)


def _halved(value: int, least: int) -> Iterator[int]:
    """Half of it, a quarter, ... down to `least`."""
    while value // 2 >= least and value > 1:
        value //= 2
        yield value
