"""Turns what a search for a way to generate found into the plan document."""

import shlex
from collections.abc import Mapping
from dataclasses import replace

from gpu_plan.planner.hardware.cluster import Cluster, cluster_document
from gpu_plan.planner.infer.evaluate import InferJudgement
from gpu_plan.planner.infer.limits import Limits
from gpu_plan.planner.infer.search import Found
from gpu_plan.planner.memory.stream import Phase
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.document import (
    Assumption,
    Candidate,
    InferenceFigures,
    PlanDocument,
    SpeedFigures,
    StrategyChoice,
    TensorLine,
    workload_document,
)
from gpu_plan.planner.search.document import device_prices, memory_figures, model_facts, standing_lines
from gpu_plan.planner.workload.generation import InferWorkload

_REPORT_FLAGS = frozenset({"--json", "--force", "--ascii", "--explain", "--no-cache", "--dry-run"})
_REPORT_VALUES = frozenset({"--format", "-o", "--output", "--save", "--snapshot", "--plot", "--top", "--sweep"})
_PROMPTS = " --execute @generate -- --prompts prompts.txt --output results.jsonl"
"""What runs the best plan."""
_NO_LIMITS = Limits(max_context=None, max_batch=None, bounds={})


def document(
    found: Found,
    *,
    source: ModelSource,
    spec: ModelSpec,
    cluster: Cluster,
    workload: InferWorkload,
    command: str,
    versions: Mapping[str, str],
    assumptions: tuple[Assumption, ...],
    warnings: tuple[str, ...],
    change: str | None,
    limits: Limits | None,
    explain: int,
) -> PlanDocument:
    """The document of one finished search; `limits` are those of its best plan."""

    def candidate(judgement: InferJudgement, reason: str | None, own: Limits | None) -> Candidate:
        made = _candidate(judgement, workload, reason, own or _NO_LIMITS, explain)
        first = found.plans and judgement is found.plans[0]
        return replace(made, command=_runs(command)) if first else made

    return PlanDocument(
        command=command,
        created_with=dict(versions),
        model=model_facts(source, spec),
        cluster=cluster_document(cluster),
        workload=workload_document(workload),
        plans=tuple(candidate(j, None, limits if index == 0 else None) for index, j in enumerate(found.plans)),
        rejected=tuple(candidate(loser.judgement, loser.reason, None) for loser in found.rejected),
        assumptions=assumptions,
        warnings=warnings,
        nearest_change=change,
        prices=device_prices(cluster),
    )


def _runs(command: str) -> str:
    """The command line that runs the best plan of `command`: its job, without what it says of the report."""
    words = shlex.split(command.partition(" --execute ")[0])
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in _REPORT_FLAGS or word.partition("=")[0] in _REPORT_VALUES:
            skip = not skip and word in _REPORT_VALUES
            continue
        kept.append(word)
    return shlex.join(kept) + _PROMPTS


def _candidate(
    judgement: InferJudgement, workload: InferWorkload, reason: str | None, limits: Limits, explain: int
) -> Candidate:
    layout = judgement.layout
    verdict = "no" if reason is not None else judgement.verdict
    return Candidate(
        strategy=StrategyChoice(
            name=layout.name,
            data_parallel=layout.data_parallel,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.pipeline_parallel,
            offload=layout.offload,
            micro_batch_size=judgement.batch,
            precision=str(workload.precision),
        ),
        verdict=verdict,  # type: ignore[arg-type]
        memory=memory_figures(judgement, None),
        speed=_speed(judgement),
        reason=reason,
        explain=_explained(judgement, explain) if explain else None,
        placement=judgement.placement,
        inference=_figures(judgement, limits),
    )


def _figures(judgement: InferJudgement, limits: Limits) -> InferenceFigures:
    times = judgement.times
    return InferenceFigures(
        prompt_tokens=judgement.prompt,
        weight_bytes=judgement.weight_bytes,
        kv_cache_bytes=judgement.kv_cache_bytes,
        load_peak_bytes=judgement.phase_peak(Phase.LOAD),
        prefill_peak_bytes=judgement.phase_peak(Phase.PREFILL),
        decode_peak_bytes=judgement.phase_peak(Phase.DECODE),
        cpu_bytes=judgement.cpu_bytes,
        disk_bytes=judgement.disk_bytes,
        max_context=limits.max_context,
        max_batch=limits.max_batch,
        limits=dict(limits.bounds),
        prefill_seconds=times.prefill.step_seconds,
        decode_seconds=times.decode.step_seconds,
        prefill_tokens_per_second=judgement.prefill_tokens_per_second,
        decode_tokens_per_second=judgement.decode_tokens_per_second,
    )


def _speed(judgement: InferJudgement) -> SpeedFigures:
    """The decode step at full context, which is what a generation repeats."""
    times = judgement.times
    step, devices = times.decode, judgement.layout.data_parallel * judgement.layout.ranks
    return SpeedFigures(
        step_seconds=step.step_seconds,
        step_seconds_low=step.low_seconds,
        step_seconds_high=step.high_seconds,
        tokens_per_second_per_gpu=judgement.samples / step.step_seconds / devices,
        samples_per_second=judgement.samples / judgement.seconds_per_sample,
        mfu=step.mfu,
        basis=step.basis,  # type: ignore[arg-type]
        parts={
            "prefill": times.prefill.step_seconds,
            "prefill_low": times.prefill.low_seconds,
            "prefill_high": times.prefill.high_seconds,
            "decode": step.step_seconds,
            "communication": step.communication_seconds,
            "host_transfer": step.host_transfer_seconds,
        },
    )


def _explained(judgement: InferJudgement, count: int) -> tuple[TensorLine, ...]:
    return standing_lines(judgement.stream, 1, str(judgement.profile.phase_of_peak), count)
