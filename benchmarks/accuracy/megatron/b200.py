"""Runs of Megatron-LM on eight B200 (SimuMax's measurements): every rank's peak."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.megatron.jobs import Job
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; `measured` holds each pipeline rank's peaks in bytes, one for each of its ranks."""

    id: str
    case: str
    measured: tuple[tuple[float, ...], ...]
    job: Job | None
    why: str = ""


def runs(path: Path) -> Iterator[Run]:
    """All of them; those with experts have no job in this version."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        experts = "n_routed_experts" in row["arch"]
        by_rank = {int(rank): mib * _MIB for rank, mib in row["measured"]["by_rank_allocated_mib"].items()}
        stages, each = row["parallel"]["pp"], len(by_rank) // row["parallel"]["pp"]
        # Pipeline ranks are the outermost: with two, the first half of the ranks are the first stage.
        measured = tuple(tuple(by_rank[stage * each + rank] for rank in range(each)) for stage in range(stages))
        job = None if experts else _job(row)
        yield Run(id=row["id"], case=row["case"], measured=measured, job=job, why="experts" if experts else "")


def _job(row: Mapping[str, Any]) -> Job:
    arch, parallel = row["arch"], row["parallel"]
    heads = arch["num_attention_heads"]
    return Job(
        model=Architecture(
            layers=arch["num_hidden_layers"],
            hidden=arch["hidden_size"],
            intermediate=arch["intermediate_size"],
            heads=heads,
            groups=arch["num_key_value_heads"],
            head_dim=arch["hidden_size"] // heads,
            vocabulary=arch["vocab_size"],
        ),
        layout=Layout(
            tensor=parallel["tp"],
            pipeline=parallel["pp"],
            context=parallel["cp"],
            sequence=parallel["tp"] > 1,
            cross_entropy="te",
            attention="flash",
        ),
        rules=StateRules(
            data_parallel=parallel["dp"] * parallel["cp"], expert_data_parallel=parallel["dp"] * parallel["cp"]
        ),
        micro_batch=row["micro_batch_per_gpu"],
        micro_batches=row["num_microbatches"],
        seq_len=row["seq_len"],
        capability=(10, 0),
    )
