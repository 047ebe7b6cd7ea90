"""One rank of a Megatron-core job as a stream."""

from dataclasses import dataclass

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.strategy.base import place_buffers, place_workspaces
from gpu_plan.planner.strategy.megatron.builder import MegatronBuilder
from gpu_plan.planner.strategy.megatron.states import StateRules, place_states
from gpu_plan.planner.trace.events import Category, Mark, ParameterInfo, StepTrace

_TE_WORKSPACE = {True: 32 * 2**20 + 1024, False: 4 * 2**20}
"""Transformer Engine's own cuBLAS workspace (pytorch/cpp_extensions/gemm.py: get_cublas_workspace_size_bytes), from
Hopper on and before."""
_GROUPED_STREAMS = 4
"""Workspaces of a grouped product, one a stream (gemm.py: _NUM_MAX_UB_STREAMS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """What is laid out."""

    trace: StepTrace
    place: PipelineRank
    rules: StateRules
    capability: tuple[int, int] | None
    masked_ids: bool = False
    """Whether ranks share the embedding's rows, and look up a masked copy of the ids."""
    deallocates: bool = True
    """Whether what is sent on is emptied at once."""
    tied: bool
    """Whether embedding and head share a weight, each on its own stage."""
    fused_gradients: bool
    grouped: bool
    """Whether a rank's experts are one grouped product."""
    transformer_engine: bool = True
    workspace_bytes: int | None = None
    """Of each of torch's cuBLAS workspaces, where CUBLAS_WORKSPACE_CONFIG says; None: what the GPU takes by itself."""


def stream_of(job: RankJob) -> tuple[RankStream, int]:
    """The rank's stream, and the elements that its optimizer steps."""
    builder = MegatronBuilder(job.trace, job.place, masked_ids=job.masked_ids, deallocates=job.deallocates)
    chunks = _chunks(job.trace, job.place)
    shared = frozenset(
        parameter.name
        for parameter in job.trace.parameters
        if job.tied and job.place.ranks > 1 and parameter.name.rpartition(".")[0].endswith(SHARED)
    )
    stepped = place_states(builder, chunks, shared, job.rules)
    if job.workspace_bytes is None:
        place_workspaces(builder, job.capability)
    else:
        for mark in (Mark.FORWARD, Mark.BACKWARD):
            at = builder.at_mark(builder.passes[0], mark)
            builder.alloc(at, job.workspace_bytes, Category.TEMPORARY, "cuBLAS workspace")
    if job.transformer_engine and job.capability is not None:
        size = _TE_WORKSPACE[job.capability[0] >= 9]
        at = builder.at_mark(builder.passes[0], Mark.FORWARD)
        for _ in range(_GROUPED_STREAMS if job.grouped else 0):
            builder.alloc(at, size, Category.TEMPORARY, "Transformer Engine's workspace (grouped)")
        builder.alloc(at, size, Category.TEMPORARY, "Transformer Engine's workspace")
    place_buffers(builder)
    for in_pass in builder.passes:
        for index in range(len(job.trace.parameters)):
            event = builder.gradient_event(index)
            if event is not None:
                # distributed_data_parallel.py: _make_backward_post_hook adds it to the buffer and lets it go.
                builder.free_gradient(builder.after(in_pass, event), in_pass, index)
    return builder.build(), stepped


SHARED = ("word_embeddings", "output_layer")
"""Ends of the modules' names that have one weight where embedding and head are tied."""


def _chunks(trace: StepTrace, place: PipelineRank) -> list[list[ParameterInfo]]:
    """Parameters of each of a rank's stages, which have a DDP each."""
    if len(place.spans) == 1:
        return [list(trace.parameters)]
    chunks: list[list[ParameterInfo]] = []
    counts = [span.cut for span in place.spans]
    remaining = list(trace.parameters)
    names: set[str] = set()
    current: list[ParameterInfo] = []
    for parameter in remaining:
        if parameter.name in names:
            chunks.append(current)
            current, names = [], set()
        current.append(parameter)
        names.add(parameter.name)
    chunks.append(current)
    return chunks if len(chunks) == len(counts) else [remaining]
