"""The planner's stream of every rank of a case, under the CPU kernel profile, and figures of both sides."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Schedule, actions
from gpu_plan.planner.pipeline.stages import StageCut, of_rank
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.parallel.stages import cut, untie
from gpu_plan.planner.trace.parallel.tensor import ranks, shard
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION, Precision
from gpu_plan.planner.workload.training import Attention, Stack
from tests.support.distributed_reference import _reference, launch_ranks
from tests.support.ranks.comparison import without_transport
from tests.support.ranks.piped.case import ITERATIONS, PipedCase
from tests.support.replay_cpu import counted


def trace_of(case: PipedCase, stage: StageCut, *, halves: bool = False) -> StepTrace:
    """One stage's forward and backward, every layer traced; of a group of ranks the first one's."""
    with ranks(case.tensor):
        return _trace_of(case, stage, halves=halves)


def _trace_of(case: PipedCase, stage: StageCut, *, halves: bool) -> StepTrace:
    model = build_model(case.config(), dtype=getattr(torch, case.dtype))
    if case.tensor > 1:
        untie(model)
        shard(model, case.tensor)
    cut(model, stage)
    variant = StepVariant(
        regime=Regime(weights=case.dtype),
        tensor_parallel=case.tensor,
        halves=halves,
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=case.seq_len,
        stage=stage,
    )
    whole = build_model(case.config())
    tracer = Tracer(
        model=model,
        make_batch=lambda _, micro_batch, seq_len: training_batch(whole, batch=micro_batch, seq_len=seq_len),
        profile=CpuProfile(threads=1),
        has_sequence=True,
        fold=False,
    )
    return tracer.trace(variant, case.micro_batch)


def stream_of(case: PipedCase, rank: int) -> RankStream:
    """What the strategy says that a rank of the first pipeline goes through."""
    own = of_rank(rank, case.stages, case.local)
    halves = case.schedule is Schedule.ZERO_BUBBLE
    trace, spans = joined([(stage, case.cuts[stage], trace_of(case, case.cuts[stage], halves=halves)) for stage in own])
    place = PipelineRank(
        rank=rank,
        ranks=case.stages,
        schedule=case.schedule,
        order=actions(case.schedule, rank, case.stages, case.local, case.micro_batches),
        micro_batches=case.micro_batches,
        spans=spans,
        keeps_sent=True,
    )
    context = RankContext(
        trace=trace,
        precision=PLAIN_PRECISION if case.dtype == "float32" else Precision("bf16"),
        optimizer=DEFAULT_OPTIMIZER,
        stack=Stack.PLAIN,
        clipping=False,
        checkpointing=case.checkpointing,
        accumulation_steps=case.micro_batches,
        world_size=case.world,
        capability=None,
        pipeline=place,
        tensor_parallel=case.tensor,
    )
    return find_strategy(case.strategy).rank(context).stream


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedRun:
    """One case on all ranks."""

    figures: tuple[dict[str, int], ...]
    losses: tuple[tuple[float, ...], ...]
    """Of each step, by micro batch, on the last rank of each pipeline."""
    expected: tuple[float, ...]
    """Mean of each step in one process."""


def run_all(cases: Sequence[PipedCase], world_size: int) -> dict[str, PipedRun]:
    """Runs `cases`, one launch for all; RuntimeError in the words of the first rank that fails."""
    with tempfile.TemporaryDirectory(prefix="plan-piped-") as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps([case.to_dict() for case in cases]))
        launch_ranks("tests.support.ranks.piped.worker", folder, world_size, 600 + 60 * len(cases))
        return {case.label(): _run(folder, number, case, world_size) for number, case in enumerate(cases)}


def _run(folder: Path, number: int, case: PipedCase, world_size: int) -> PipedRun:
    told = [json.loads((folder / f"case-{number}-rank-{rank}.json").read_text()) for rank in range(world_size)]
    error = next((values["error"] for values in told if "error" in values), "")
    if error:
        raise RuntimeError(error)
    last = [values for values in told if any(values["losses"])][:: case.tensor]
    return PipedRun(
        figures=tuple(measured(values, case) for values in told),
        losses=tuple(
            tuple(loss for values in last for loss in values["losses"][iteration]) for iteration in range(ITERATIONS)
        ),
        expected=tuple(told[0]["expected"]),
    )


def measured(values: dict[str, Any], case: PipedCase) -> dict[str, int]:
    """Figures of a real rank."""
    reference = _reference(values)
    kept = without_transport(reference, "ddp" if case.strategy == "ddp_pp" else case.strategy)
    live = np.concatenate([[0], np.cumsum(counted(np.asarray([c.nbytes for c in kept], dtype=np.int64)))])
    at = reference.marks
    found = {"wrapped": int(live[at["wrapped"]])}
    for step in range(ITERATIONS):
        found[f"micro batches {step} peak"] = int(live[at[f"begin:{step}"] : at[f"step:{step}"] + 1].max())
        found[f"micro batches {step} end"] = int(live[at[f"step:{step}"]])
        found[f"step {step} peak"] = int(live[at[f"step:{step}"] : at[f"rest:{step}"] + 1].max())
        found[f"rest {step}"] = int(live[at[f"rest:{step}"]])
    return found


def replayed(stream: RankStream, micro_batch: int) -> dict[str, int]:
    """Figures of a stream, in requested bytes."""
    sizes = counted(stream.requested(micro_batch))
    live = np.concatenate([[0], np.cumsum(stream.event_sign * sizes[stream.event_tensor])])
    bounds = [0, *stream.step_segments]
    found = {}
    ends = [int(np.searchsorted(stream.event_segment, segment, side="right")) for segment in bounds]
    found["wrapped"] = int(live[ends[0]])
    for step in range(ITERATIONS):
        start, begun = ends[step], int(np.searchsorted(stream.event_segment, bounds[step + 1]))
        found[f"micro batches {step} peak"] = int(live[start : begun + 1].max())
        found[f"micro batches {step} end"] = int(live[begun])
        found[f"step {step} peak"] = int(live[begun : ends[step + 1] + 1].max())
        found[f"rest {step}"] = int(live[ends[step + 1]])
    return found
