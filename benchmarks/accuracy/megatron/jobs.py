"""One rank of a Megatron-core job replayed, from an architecture and a layout alone."""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

from torch import nn

from gpu_plan.planner.megatron import schedules, stages
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import Part
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.strategy.megatron.rank import RankJob, stream_of
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.megatron.stage import build_stage, stage_batch
from gpu_plan.planner.trace.parallel.tensor import ranks
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

_MULTIPROCESSORS = {(8, 0): 108, (9, 0): 132, (10, 0): 152}
"""Of A100, H100 and GB200, as torch reports them."""


class Other(Protocol):
    """A model of Megatron-core's that is no GPT; hashable."""

    def build(self, part: Part) -> nn.Module:
        """A stage's modules on meta, within a process group of the layout's ranks."""

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """What one micro batch is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a row says of a run."""

    model: Architecture
    layout: Layout
    rules: StateRules
    micro_batch: int
    micro_batches: int
    seq_len: int
    capability: tuple[int, int]
    workspace_bytes: int | None = None
    other: Other | None = None
    """What is built of the architecture instead of a GPT."""


def stream(job: Job, rank: int) -> tuple[RankStream, StepTrace]:
    """One pipeline rank's stream."""
    layout = job.layout
    cuts = stages.cuts(job.model.layers, layout)
    own = [rank + place * layout.pipeline for place in range(layout.virtual)]
    traces = [(stage, cuts[stage], _trace(job, cuts[stage])) for stage in own]
    trace, spans = joined(traces)
    place = PipelineRank(
        rank=rank,
        ranks=layout.pipeline,
        schedule=Schedule.INTERLEAVED if layout.virtual > 1 else Schedule.ONE_F_ONE_B,
        order=schedules.actions(layout, rank, job.micro_batches),
        micro_batches=job.micro_batches,
        spans=spans,
    )
    made, _ = stream_of(
        RankJob(
            trace=trace,
            place=place,
            rules=job.rules,
            capability=job.capability,
            masked_ids=layout.tensor > 1,
            deallocates=layout.deallocates,
            tied=job.model.tied,
            fused_gradients=layout.fused_gradients,
            grouped=job.model.experts is not None and layout.grouped,
            # moe_utils.py: RouterGatingLinearFunction computes by Transformer Engine whatever the layers are.
            transformer_engine=not layout.local or job.model.experts is not None,
            workspace_bytes=job.workspace_bytes,
        )
    )
    return made, trace


def profile(job: Job, rank: int) -> MemoryProfile:
    """Figures of one pipeline rank."""
    return measure(stream(job, rank)[0], job.micro_batch)


def peak_of_blocks(job: Job, rank: int) -> int:
    """Its `max_memory_allocated`: blocks as the allocator hands them out, with what it does not split off."""
    return simulate(stream(job, rank)[0], job.micro_batch).peak_allocated_bytes


def _trace(job: Job, cut: StageCut) -> StepTrace:
    part = Part(model=job.model, layout=job.layout.own(), cut=cut)
    return _traced(part, job.micro_batch, job.seq_len, job.capability, job.other)


@cache
def _traced(part: Part, micro_batch: int, seq_len: int, capability: tuple[int, int], other: Other | None) -> StepTrace:
    build, batch = (build_stage, stage_batch) if other is None else (other.build, other.batch)
    variant = StepVariant(
        regime=Regime(weights="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=seq_len,
        part=part,
    )
    with ranks(part.group):
        tracer = Tracer(
            model=build(part),
            make_batch=lambda _, samples, length: batch(part, samples, length),
            profile=CudaProfile(capability=capability, sm_count=_MULTIPROCESSORS[capability], row_sums=True),
            has_sequence=True,
        )
        return tracer.trace(variant, micro_batch)
