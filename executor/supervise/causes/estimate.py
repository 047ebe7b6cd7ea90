"""Why an estimate was wrong, as far as the ranks' records tell; pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.planner.plan.figures import MemoryFigures
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.units import format_bytes

_CUDA = re.compile(
    r"total capacity of (?P<total>[\d.]+ [KMGT]iB) of which (?P<free>[\d.]+ [KMGT]?i?B) is free"
    r"(?:.*?this process has (?P<used>[\d.]+ [KMGT]iB) memory in use)?",
    re.IGNORECASE | re.DOTALL,
)
_FACTOR = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "optimizer step"}
_NOTABLE = 0.02
"""A difference below this share of the plan's figure explains nothing."""


def real_capacity(ranks: Sequence[RankRecord]) -> int | None:
    """Device bytes that the failing rank could have had, from CUDA's message: what it used and what was free.

    None where no message tells, as on a CPU.
    """
    found = [_cuda(rank) for rank in ranks if rank.status == "oom"]
    return min((used + free for _, free, used in filter(None, found)), default=None)


def explain_estimate(saved: SavedPlan, ranks: Sequence[RankRecord], data_limits: Mapping[int, int]) -> tuple[str, ...]:
    """One line for each difference between what was assumed and what was seen; one line at least.

    `data_limits`: by rank, bytes of data that the process was allowed to have, libraries and all.
    """
    out_of_memory = [rank for rank in ranks if rank.status == "oom"] or ranks
    failed = min(out_of_memory, key=lambda rank: (rank.updated, rank.rank), default=None)
    if failed is None:
        return ("no rank left a record: why the estimate was wrong is not known",)
    lines = [
        *_job(saved, failed),
        *_limit(saved, failed, data_limits),
        *_device(saved, failed),
        *_phases(saved.plan.memory, failed),
    ]
    return tuple(lines) or (_nothing_seen(saved, failed),)


def _job(saved: SavedPlan, rank: RankRecord) -> Iterator[str]:
    actual, strategy, model = rank.actual, saved.plan.strategy, saved.model
    pairs: tuple[tuple[str, object, object], ...] = (
        ("parameters", None if model.several else saved.called_parameters, actual.parameters),
        ("trainable parameters", model.trainable_parameters, actual.trainable_parameters),
        ("rows in a micro batch", saved.rows_of_a_call, actual.micro_batch_size),
        ("tokens in a sample", saved.workload["seq_len"] if model.has_sequence else None, actual.sequence_length),
        ("ranks", strategy.world_size, actual.world_size),
        ("strategy", strategy.name, actual.strategy),
    )
    for what, planned, seen in pairs:
        if planned is not None and seen is not None and planned != seen:
            yield f"{what}: {_number(seen)} instead of {_number(planned)}"
    if actual.checkpointing is False and strategy.checkpointing == "full":
        yield "activation checkpointing was planned and was not on"
    lengths = {shape[1] for shape in actual.batch_shapes if len(shape) > 1}
    if model.has_sequence and len(lengths) > 1:
        yield f"samples had {min(lengths)} to {max(lengths)} tokens, the plan has one length"


def _limit(saved: SavedPlan, rank: RankRecord, limits: Mapping[int, int]) -> Iterator[str]:
    memory, limit = saved.plan.memory, limits.get(rank.rank)
    if memory is not None and limit is not None and limit < memory.capacity_bytes:
        yield (
            f"rank {rank.rank} may hold {format_bytes(limit)} of data, libraries included (ulimit -d or -v), the plan"
            f" counts on {format_bytes(memory.capacity_bytes)}"
        )


def _device(saved: SavedPlan, rank: RankRecord) -> Iterator[str]:
    memory = saved.plan.memory
    device_bytes = _cuda(rank)
    if memory is None or device_bytes is None:
        return
    total, free, used = device_bytes
    if total < memory.capacity_bytes * (1 - _NOTABLE):
        yield f"the device has {format_bytes(total)}, the plan assumes {format_bytes(memory.capacity_bytes)}"
    others = total - free - used
    if others > total * _NOTABLE:
        yield f"other processes hold {format_bytes(others)} of the device"
    if used > memory.device_used_high_bytes:
        yield f"{format_bytes(used)} were in use, the plan says at most {format_bytes(memory.device_used_high_bytes)}"


def _phases(memory: MemoryFigures | None, rank: RankRecord) -> Iterator[str]:
    """Device memory by phase. Resident memory on a CPU holds libraries too and cannot be compared so."""
    if memory is None or rank.summary.peak_allocated_bytes is None:
        return
    for phase, planned_phase in _PHASES.items():
        seen, planned = rank.summary.phases.get(phase), memory.phase_peaks.get(planned_phase)
        if seen is not None and planned and abs(seen - planned) > planned * _NOTABLE:
            yield f"{phase} peaked at {format_bytes(seen)}, planned {format_bytes(planned)}"


def _nothing_seen(saved: SavedPlan, rank: RankRecord) -> str:
    memory, summary = saved.plan.memory, rank.summary
    seen = summary.peak_device_used_bytes or summary.peak_resident_bytes or 0
    asked = rank.error.requested_bytes if rank.error and rank.error.requested_bytes else 0
    if memory is None:
        return "the job is as planned in what was seen of it; the plan has no memory figures to compare with"
    if not seen:
        return (
            "the job is as planned in what was seen of it; it failed before a step was measured, so the memory that it"
            f" may use is less than the assumed {format_bytes(memory.capacity_bytes)}, or the peak of"
            f" {format_bytes(memory.device_used_bytes)} is wrong"
        )
    kind = "in use" if summary.peak_device_used_bytes else "resident"
    if seen + asked < memory.capacity_bytes:
        return (
            f"the real limit is lower than assumed: {format_bytes(seen)} {kind} and {format_bytes(asked)} asked for are"
            f" within the {format_bytes(memory.capacity_bytes)} that the plan counts on (a ulimit, a cgroup, others?)"
        )
    return f"{format_bytes(seen)} {kind}, the plan says {format_bytes(memory.device_used_bytes)}"


def _cuda(rank: RankRecord) -> tuple[int, int, int] | None:
    """Total, free and used bytes in torch's out-of-memory message (c10/cuda/CUDACachingAllocator.cpp)."""
    match = _CUDA.search(rank.error.message) if rank.error else None
    if match is None:
        return None
    total, free = _bytes(match["total"]), _bytes(match["free"])
    return total, free, _bytes(match["used"]) if match["used"] else total - free


def _bytes(text: str) -> int:
    number, unit = text.split()
    return round(float(number) * _FACTOR.get(unit, 1))


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
