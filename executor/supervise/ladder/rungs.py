"""The ladder of plans after an out-of-memory end: each keeps the effective batch and takes less memory. Pure.

Smaller micro batch with more accumulation, then activation checkpointing, then a strategy that shares out more, then
offload. Rungs are cumulative: a later one keeps what the earlier ones changed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.strategy.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a relaunch can change."""

    batch: bool = True
    """Whether micro batch and accumulation reach the script."""
    checkpointing: bool = True
    deepspeed: bool = True
    """Whether DeepSpeed is installed."""


def rungs(strategy: StrategyChoice, able: Abilities) -> Iterator[StrategyChoice]:
    """Strategies to try after `strategy`, mildest first."""
    at = strategy
    if able.batch:
        for size in _smaller(strategy.micro_batch_size, strategy.gradient_accumulation_steps):
            share = strategy.micro_batch_size * strategy.gradient_accumulation_steps
            at = replace(strategy, micro_batch_size=size, gradient_accumulation_steps=share // size)
            yield at
    if able.checkpointing and strategy.checkpointing != "full":
        at = replace(at, checkpointing="full")
        yield at
    ladder = traits_of(strategy.name).ladder
    for traits in _runnable(ladder.then, able):
        higher = replace(at, name=traits.name, zero_stage=traits.stage)
        yield higher
        yield from _offloaded(higher)
    yield from _offloaded(at)
    for traits in _runnable(ladder.only_offloaded, able):
        yield from _offloaded(replace(at, name=traits.name, zero_stage=traits.stage))


def _runnable(names: Iterable[str], able: Abilities) -> Iterator[Traits]:
    for traits in map(traits_of, names):
        if able.deepspeed or not traits.uses_deepspeed:
            yield traits


def _offloaded(strategy: StrategyChoice) -> Iterator[StrategyChoice]:
    known = [str(offload) for offload in traits_of(strategy.name).ladder.offloads]
    start = known.index(strategy.offload) + 1 if strategy.offload in known else 0
    for offload in known[start:]:
        yield replace(strategy, offload=offload)


def _smaller(micro_batch: int, accumulation: int) -> list[int]:
    """Smaller divisors of a rank's share, at most half as large, largest first."""
    share = micro_batch * accumulation
    return [size for size in range(micro_batch // 2, 0, -1) if share % size == 0]


def change_words(before: StrategyChoice, after: StrategyChoice) -> str:
    """`micro batch 8 → 4 with accumulation 1 → 2`, `checkpointing none → full`, ...; the global batch is the same."""
    parts = []
    if before.micro_batch_size != after.micro_batch_size:
        parts.append(
            f"micro batch {before.micro_batch_size} → {after.micro_batch_size} with accumulation"
            f" {before.gradient_accumulation_steps} → {after.gradient_accumulation_steps}"
        )
    for name, words in (("checkpointing", "checkpointing"), ("name", "strategy"), ("offload", "offload")):
        was, becomes = getattr(before, name), getattr(after, name)
        if was != becomes:
            parts.append(f"{words} {was} → {becomes}")
    return ", ".join(parts) + f"; the global batch stays {after.global_batch_size}"
