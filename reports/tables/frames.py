"""Plans as flat rows, one for each candidate: what CSV holds and what pandas frames are made of. Bytes, seconds."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.reports.clean import one_line

if TYPE_CHECKING:
    import pandas

Row = dict[str, object]


def plan_rows(document: PlanDocument) -> list[Row]:
    """Every candidate: plans best first (`rank` from 1), then those that lost, each with its reason."""
    common: Row = {
        "model": document.model.id,
        "gpus": document.cluster["gpus"],
        "cluster": document.cluster["spec"],
        "sequence_length": document.workload.get("seq_len") if document.model.has_sequence else None,
    }
    ranked = enumerate(document.plans, start=1)
    return [
        *({"rank": rank, **common, **candidate_row(plan)} for rank, plan in ranked),
        *({"rank": None, **common, **candidate_row(rejected)} for rejected in document.rejected),
    ]


def candidate_row(candidate: Candidate | None) -> Row:
    """A candidate's figures under names of one level; those of a candidate that has none are missing."""
    if candidate is None:
        return {}
    row: Row = {"verdict": candidate.verdict}
    row.update(_prefixed("", candidate.strategy))
    row["strategy"] = row.pop("name")
    memory, speed = candidate.memory, candidate.speed
    if memory is not None:
        row.update(
            _prefixed("", memory, leave=("at_peak", "outside_allocator", "uncertain", "phase_peaks", "host", "rank"))
        )
        row["worst_rank"] = memory.rank
        row.update(_prefixed("at_peak_", memory.at_peak))
        row.update(_prefixed("outside_", memory.outside_allocator))
    if speed is not None:
        row.update(_prefixed("", speed, leave=("parts", "basis")))
        row["speed_basis"] = speed.basis
    if candidate.inference is not None:
        row.update(_prefixed("", candidate.inference))
    row["reason"] = candidate.reason
    row["command"] = candidate.command
    return row


def memory_rows(document: PlanDocument) -> list[Row]:
    """Bytes by candidate and category, in long form: what stacked bars and pivots are made of."""
    rows: list[Row] = []
    for rank, candidate in _ranked(document):
        memory = candidate.memory
        if memory is None:
            continue
        parts = {**memory.at_peak.items(), "cuda_context": memory.outside_allocator.cuda_context}
        parts["nccl"] = memory.outside_allocator.nccl
        parts["cached"] = memory.device_used_bytes - sum(parts.values())
        choice = candidate.strategy
        named: Row = {
            "rank": rank,
            "strategy": choice.name,
            "offload": choice.offload,
            "micro_batch_size": choice.micro_batch_size,
            "checkpointing": choice.checkpointing,
            "verdict": candidate.verdict,
            "capacity_bytes": memory.capacity_bytes,
        }
        rows += [{**named, "category": category, "bytes": size} for category, size in parts.items()]
    return rows


def frame_of(rows: Iterable[Row]) -> "pandas.DataFrame":
    """A frame of rows that need not have the same columns. UsageError where pandas is not installed."""
    from gpu_plan.reports.requires import need_pandas

    need_pandas("frame()")
    import pandas

    return pandas.DataFrame(list(rows)).convert_dtypes()


def _ranked(document: PlanDocument) -> Iterator[tuple[int | None, Candidate]]:
    yield from enumerate(document.plans, start=1)
    for rejected in document.rejected:
        yield None, rejected


def _prefixed(prefix: str, figures: object, leave: tuple[str, ...] = ()) -> Row:
    """Every single value of a dataclass; lists and sections that later versions bring are left out."""
    values = plain(figures)
    return {
        f"{prefix}{name}": value
        for name, value in values.items()
        if name not in leave and not isinstance(value, (list, dict))
    }


_FORMULA = ("=", "+", "-", "@")


def cell(value: object) -> object:
    """Text on one line; a spreadsheet must not take it for a formula."""
    if not isinstance(value, str):
        return value
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
