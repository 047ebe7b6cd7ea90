"""The planner's stream of every rank of a case, under the CPU kernel profile, and figures of both sides.

Figures are bytes above what stood when the step began: states differ, for Megatron-core's optimizer needs CUDA. The
statistics of layer norms are left out on both sides: the CPU keeps them in the norm's 16 bits, CUDA in fp32.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_plan.planner.megatron import schedules, stages
from gpu_plan.planner.megatron.part import Part
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Kind, Schedule
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.strategy.base import place_buffers
from gpu_plan.planner.strategy.megatron.forward import ForwardBuilder, forwards
from gpu_plan.planner.strategy.megatron.rank import RankJob, stream_of
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.megatron.stage import build_stage, stage_batch
from gpu_plan.planner.trace.parallel.tensor import ranks
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.distributed_reference import _reference, launch_ranks
from tests.support.ranks.comparison import without_transport
from tests.support.ranks.megatron.case import MegatronCase
from tests.support.replay_cpu import counted


def trace_of(case: MegatronCase, cut: StageCut) -> StepTrace:
    """One stage's forward and backward."""
    part = Part(model=case.model, layout=case.layout.own(), cut=cut)
    variant = StepVariant(
        regime=Regime(weights="bfloat16"), checkpointing=Checkpointing.NONE, attention=Attention.SDPA,
        stack=Stack.PLAIN, seq_len=case.seq_len, part=part,
        evaluation="log-probabilities" if case.forward_only else "",
    )  # fmt: skip
    with ranks(part.group):
        tracer = Tracer(
            model=build_stage(part),
            make_batch=lambda _, samples, length: stage_batch(part, samples, length),
            profile=CpuProfile(threads=1),
            has_sequence=True,
            fold=False,
        )
        return tracer.trace(variant, case.micro_batch)


def replay(case: MegatronCase, rank: int) -> tuple[RankStream, PipelineRank]:
    """What a rank of one pipeline goes through."""
    layout = case.layout
    cuts = stages.cuts(case.model.layers, layout)
    own = [rank + place * layout.pipeline for place in range(layout.virtual)]
    trace, spans = joined([(stage, cuts[stage], trace_of(case, cuts[stage])) for stage in own])
    place = PipelineRank(
        rank=rank,
        ranks=layout.pipeline,
        schedule=Schedule.INTERLEAVED if layout.virtual > 1 else Schedule.ONE_F_ONE_B,
        order=schedules.actions(layout, rank, case.micro_batches),
        micro_batches=case.micro_batches,
        spans=spans,
    )
    if case.forward_only:
        place = replace(place, order=forwards(place.order))
        builder = ForwardBuilder(trace, place)
        place_buffers(builder)
        return builder.build(), place
    rules = StateRules(data_parallel=1, expert_data_parallel=1, distributed=False)
    made, _ = stream_of(
        RankJob(
            trace=trace, place=place, rules=rules, capability=None, masked_ids=layout.tensor > 1,
            deallocates=layout.deallocates, tied=False,
            fused_gradients=False, grouped=False, transformer_engine=False,
        )
    )  # fmt: skip
    return made, place


Values = dict[str, Any]
"""What one rank wrote."""


def run_often(cases: Sequence[MegatronCase], world_size: int, times: int = 3) -> dict[str, list[tuple[Values, ...]]]:
    """The same several times: gloo's threads can free a tensor where the profiler does not see it, so that what a
    launch measured may be too much and is never too little."""
    found: dict[str, list[tuple[Values, ...]]] = {}
    for _ in range(times if world_size > 1 else 1):
        for label, values in run_all(cases, world_size).items():
            found.setdefault(label, []).append(values)
    return found


def least(launches: Sequence[tuple[Values, ...]], rank: int, case: MegatronCase, iteration: int) -> int:
    """A rank's peak in the launch that saw the least of it."""
    return min(measured(values[rank], case, iteration)["peak"] for values in launches)


def run_all(cases: Sequence[MegatronCase], world_size: int) -> dict[str, tuple[dict[str, Any], ...]]:
    """Runs `cases`, one launch for all: what each rank wrote; RuntimeError in the words of the first that fails."""
    with tempfile.TemporaryDirectory(prefix="plan-megatron-") as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps([case.to_dict() for case in cases]))
        launch_ranks("tests.support.ranks.megatron.worker", folder, world_size, 600 + 60 * len(cases))
        return {case.label(): _ranks(folder, number, world_size) for number, case in enumerate(cases)}


def _ranks(folder: Path, number: int, world_size: int) -> tuple[dict[str, Any], ...]:
    found = tuple(json.loads((folder / f"case-{number}-rank-{rank}.json").read_text()) for rank in range(world_size))
    error = next((values["error"] for values in found if "error" in values), "")
    if error:
        raise RuntimeError(error)
    return found


_NORM = "native_layer_norm"


def live_of(values: dict[str, Any], case: MegatronCase) -> tuple[IntArray, dict[str, int]]:
    """Bytes that live after each change of a real rank, and where its marks lie."""
    reference = _reference(values)
    marks = {"built": 0, "wrapped": 0, **reference.marks}
    kept = without_transport(replace(reference, marks=marks), "pp")
    sizes = counted(np.asarray([change.nbytes for change in kept], dtype=np.int64))
    statistics = 2 * case.micro_batch * case.seq_len
    pointers = set[int]()
    for number, change in enumerate(kept):
        if change.nbytes == statistics and any(_NORM in step for step in change.path):
            pointers.add(change.pointer)
            sizes[number] = 0
        elif change.nbytes < 0 and change.pointer in pointers:
            pointers.discard(change.pointer)
            sizes[number] = 0
    return np.concatenate([[0], np.cumsum(sizes)]), reference.marks


def measured(values: dict[str, Any], case: MegatronCase, iteration: int) -> dict[str, int]:
    """Peak of a step above what stood when the first one began: what dispatchers keep from one step to the next is
    among it."""
    live, at = live_of(values, case)
    start, end = at[f"begin:{iteration}"], at[f"step:{iteration}"]
    return {"peak": int(live[start : end + 1].max() - live[at["begin:0"]])}


def requested(stream: RankStream, case: MegatronCase) -> IntArray:
    """Bytes of every storage of a stream that are counted."""
    sizes, trace = counted(stream.requested(case.micro_batch)), stream.trace
    norms = [index for index, name in enumerate(trace.operator_names) if _NORM in name]
    own = np.isin(trace.tensor_operator, norms)
    statistics = own & (trace.tensor_bytes(case.micro_batch) == 4 * case.micro_batch * case.seq_len)
    sizes[: stream.num_passes * trace.num_tensors][np.tile(statistics, stream.num_passes)] = 0
    return sizes


def replayed(stream: RankStream, case: MegatronCase, iteration: int) -> dict[str, int]:
    """The same of a stream, in requested bytes, without what its optimizer makes: the real one is not run."""
    sizes = requested(stream, case)
    stepped = np.isin(stream.event_segment, stream.step_segments)
    made = np.unique(stream.event_tensor[stepped & (stream.event_sign > 0)])
    sizes[made] = 0
    live = np.concatenate([[0], np.cumsum(stream.event_sign * sizes[stream.event_tensor])])
    bounds = [0, *stream.step_segments]
    first, start = (int(np.searchsorted(stream.event_segment, bounds[n], side="right")) for n in (0, iteration))
    end = int(np.searchsorted(stream.event_segment, bounds[iteration + 1]))
    return {"peak": int(live[start : end + 1].max() - live[first])}


def _warm(place: PipelineRank) -> int:
    """Forwards of a step that come before its first backward."""
    return next(number for number, action in enumerate(place.order) if action.kind is not Kind.FORWARD)


def measured_in_flight(values: dict[str, Any], case: MegatronCase, place: PipelineRank, iteration: int) -> int:
    """Bytes above what stood when a step began, before its first backward."""
    live, at = live_of(values, case)
    first = iteration * len(place.order) + _warm(place) - 1
    return int(live[at[f"action:{first}"]] - live[at[f"begin:{iteration}"]])


def in_flight(stream: RankStream, case: MegatronCase, place: PipelineRank, iteration: int) -> int:
    """The same of a stream: past the forward's own events, with its output."""
    sizes = requested(stream, case)
    live = np.concatenate([[0], np.cumsum(stream.event_sign * sizes[stream.event_tensor])])
    bounds = [0, *stream.step_segments]
    start = int(np.searchsorted(stream.event_segment, bounds[iteration], side="right"))
    segments = np.unique(stream.event_segment[start:])
    last = int(np.searchsorted(stream.event_segment, segments[_warm(place) - 1], side="right"))
    return int(live[last] - live[start])
