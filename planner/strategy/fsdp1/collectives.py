"""What FSDP1 sends between ranks, and between device and host, unit by unit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit
from gpu_plan.planner.strategy.fsdp2.host import transfers

_GATHERING = (3, 22)
"""Operators of one all-gather, fewest and most beside a view of each parameter, counted in a run of torch 2.13's own
hooks (tests/trace/test_hooks_issued.py; torch _flat_param.py: unshard, pre_unshard). Fewest: the cast, a buffer, the
all-gather. Most: what only changes shapes and what names spans for a profiler too."""
REDUCING = (6, 9)
"""All of one reduction (_runtime_utils.py: _reduce_grad): gradients laid out, a buffer, two divisions, the
reduce-scatter, the cast back."""


def gathering(parameters: int) -> tuple[int, int]:
    fewest, most = _GATHERING
    return fewest, most + parameters


def sent_of(
    units: Sequence[FlatUnit],
    stored: Callable[[FlatUnit], str],
    reduced_in: Callable[[FlatUnit], str],
    *,
    each: bool,
    on_host: bool,
) -> tuple[Collective, ...]:
    """Gathers in forward, gathers again in backward of what was freed, and one reduction a step, or with `each` of
    every micro step; `stored` and `reduced_in`: dtypes of a unit's shard and of its reduction. `on_host`: shards come
    from the host before every gather, and reduced gradients go there."""

    def forward(unit: FlatUnit) -> Collective:
        return Collective(
            kind="all_gather",
            bytes=nbytes(unit.flat_numel, unit.dtype),
            overlap=True,
            phase="forward",
            per="micro_step",
            issued=gathering(len(unit.parameters)),
        )

    def reduction(unit: FlatUnit) -> Collective:
        return Collective(
            kind="reduce_scatter",
            bytes=nbytes(unit.flat_numel, reduced_in(unit)),
            overlap=True,
            phase="backward",
            per="micro_step" if each else "step",
            issued=REDUCING,
        )

    inner, trained = [unit for unit in units if not unit.is_root], [unit for unit in units if unit.trainable]
    again = [replace(forward(unit), phase="backward") for unit in inner]
    moved: list[Collective] = []
    if on_host:
        size = {unit.module: nbytes(unit.shard_numel, stored(unit)) for unit in units}
        moved = transfers(
            list(size.values()), [size[one.module] for one in inner], [size[one.module] for one in trained]
        )
    return (*(forward(unit) for unit in units), *again, *(reduction(unit) for unit in trained), *moved)
