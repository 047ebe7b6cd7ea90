"""The ladder of plans after an out-of-memory end: each keeps the effective batch and takes less memory. Pure.

Smaller micro batch with more accumulation, then activation checkpointing, then a strategy that shares out more, then
offload. Rungs are cumulative: a later one keeps what the earlier ones changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.plan.figures import StrategyChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a relaunch can change."""

    batch: bool = True
    """Whether micro batch and accumulation reach the script."""
    checkpointing: bool = True
    deepspeed: bool = True
    """Whether DeepSpeed is installed."""


_HIGHER: Mapping[str, tuple[str, ...]] = {
    "ddp": ("fsdp", "zero2", "zero3"),
    "zero1": ("zero2", "zero3"),
    "zero2": ("zero3",),
    "hsdp": ("fsdp",),
}
"""Strategies that share out more among the same ranks. Engines are not mixed where they need not be: a checkpoint of
one is rarely read by the other."""
_OFFLOADS: Mapping[str, tuple[str, ...]] = {
    "fsdp": ("all",),
    "fsdp1": ("all",),
    "zero1": ("optimizer",),
    "zero2": ("optimizer",),
    "zero3": ("optimizer", "all"),
}
_STAGE: Mapping[str, int] = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3, "hsdp": 3}


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
    for name in _HIGHER.get(strategy.name, ()):
        if able.deepspeed or not name.startswith("zero"):
            higher = replace(at, name=name, zero_stage=_STAGE[name])
            yield higher
            yield from _offloaded(higher)
    yield from _offloaded(at)
    if strategy.name == "single" and able.deepspeed:
        # On one device nothing can be shared out, but DeepSpeed can move states to the host.
        for name in ("zero2", "zero3"):
            yield from _offloaded(replace(at, name=name, zero_stage=_STAGE[name]))


def _offloaded(strategy: StrategyChoice) -> Iterator[StrategyChoice]:
    known = _OFFLOADS.get(strategy.name, ())
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
