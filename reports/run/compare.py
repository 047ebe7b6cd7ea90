"""A run's figures against its plan's: what was predicted, what was measured, and whether the two can be compared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from gpu_plan.executor.records.rank import RankRecord, StepRecord
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.dtypes import tensor_bytes
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.document import CATEGORY_NAMES
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.units import ceil_div
from gpu_plan.reports.run import inference as run_inference
from gpu_plan.reports.run.figures import Compared, RankLine, most

PHASES = {"forward": "forward", "backward": "backward", "optimizer": "optimizer step"}
"""A rank's word for a phase, and the plan's."""
RESIDENT = (
    "CPU ranks have no allocator that counts: measured is resident memory at its peak less what stood before the"
    " script's first line. It also holds the libraries that the script imported, gloo's buffers and what malloc keeps,"
    " so it is shown beside the prediction and not held against it (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ ="
    " 65536 and MALLOC_ARENA_MAX = 1 make malloc give freed memory back, and ranks agree within 1 MB)"
)
_TOTALS = "the device tells totals: what stands in them is known from a memory snapshot only"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """What a report of a run shows, beside the records themselves."""

    cpu: bool
    memory: tuple[Compared, ...]
    phases: tuple[Compared, ...]
    categories: tuple[Compared, ...]
    speed: tuple[Compared, ...]
    ranks: tuple[RankLine, ...]
    notes: tuple[str, ...]
    inference: bool = False
    """Whether prompts were run; the ranks' steps are batches then."""


def compare_run(run: WholeRun) -> RunComparison:
    """The worst rank of the latest attempt against its plan; without a plan, what was measured alone."""
    if run_inference.is_inference(run):
        return _prompts(run)
    cpu = bool(run.ranks) and all(rank.device == "cpu" for rank in run.ranks)
    notes = [*run.problems]
    if cpu:
        notes.append(RESIDENT)
    elif run.ranks:
        notes.append(_TOTALS)
    return RunComparison(
        cpu=cpu,
        memory=_memory(run, cpu),
        phases=_phases(run, cpu),
        categories=_categories(run),
        speed=_speed(run),
        ranks=tuple(_line(rank, cpu) for rank in run.ranks),
        notes=tuple(notes),
    )


def _prompts(run: WholeRun) -> RunComparison:
    return RunComparison(
        cpu=bool(run.ranks) and all(rank.device == "cpu" for rank in run.ranks),
        memory=run_inference.memory(run),
        phases=run_inference.phases(run),
        categories=(),
        speed=run_inference.speed(run),
        ranks=tuple(run_inference.line(rank, _error(rank)) for rank in run.ranks),
        notes=(*run.problems, *run_inference.notes(run)),
        inference=True,
    )


def peak_of(rank: RankRecord, cpu: bool) -> int | None:
    """A rank's peak: allocated on CUDA, resident less base on CPU."""
    if not cpu:
        return rank.summary.peak_allocated_bytes
    return _above_base(rank, rank.summary.peak_resident_bytes)


def _above_base(rank: RankRecord, resident: int | None) -> int | None:
    if resident is None or rank.base_resident_bytes is None:
        return None
    return max(0, resident - rank.base_resident_bytes)


def _memory(run: WholeRun, cpu: bool) -> tuple[Compared, ...]:
    plan = run.plan.plan.memory if run.plan is not None else None
    measured = most(peak_of(rank, cpu) for rank in run.ranks)
    if cpu:
        expected = None if plan is None else plan.peak_allocated_bytes + plan.host_bytes
        return (Compared(name="resident above base", predicted=expected, measured=measured, comparable=False),)
    return (
        Compared(
            name="peak allocated", predicted=None if plan is None else plan.peak_allocated_bytes, measured=measured
        ),
        Compared(
            name="peak reserved",
            predicted=None if plan is None else plan.peak_reserved_bytes,
            measured=most(rank.summary.peak_reserved_bytes for rank in run.ranks),
        ),
        Compared(
            name="device used",
            predicted=None if plan is None else plan.device_used_bytes,
            low=None if plan is None else plan.device_used_low_bytes,
            high=None if plan is None else plan.device_used_high_bytes,
            measured=most(rank.summary.peak_device_used_bytes for rank in run.ranks),
        ),
    )


def _phases(run: WholeRun, cpu: bool) -> tuple[Compared, ...]:
    plan = run.plan.plan.memory if run.plan is not None else None
    predicted = {} if plan is None else dict(plan.phase_peaks)
    found = []
    for phase, word in PHASES.items():
        measured = most(_phase(rank, phase, cpu) for rank in run.ranks)
        if measured is not None or word in predicted:
            found.append(Compared(name=word, predicted=predicted.get(word), measured=measured, comparable=not cpu))
    return tuple(found)


def _phase(rank: RankRecord, phase: str, cpu: bool) -> int | None:
    peak = rank.summary.phases.get(phase)
    return _above_base(rank, peak) if cpu else peak


def _categories(run: WholeRun) -> tuple[Compared, ...]:
    """What stands at the predicted peak. Of what was measured, only the weights are known: from their dtypes."""
    plan = run.plan.plan if run.plan is not None else None
    if plan is None or plan.memory is None:
        return ()
    traits = known_traits(plan.strategy.name)
    whole = traits is not None and not traits.stage
    sharded = traits is not None and traits.wraps_blocks
    found = []
    for name in CATEGORY_NAMES:
        predicted = plan.memory.at_peak.items()[name]
        known = _weights(run) if name == "parameters" and (whole or sharded) else None
        if known is not None and sharded:
            shards = None if traits is None or traits.replicates else run.record.world_size or 1
            known = None if shards is None else ceil_div(known, shards)
        if predicted or known:
            # Shards are padded, and the plan counts whole blocks of the allocator: close, and not the same.
            found.append(Compared(name=name, predicted=predicted, measured=known, comparable=known is not None))
    return tuple(found)


def _weights(run: WholeRun) -> int | None:
    """Bytes of the whole model's parameters as the ranks saw them."""
    dtypes = next((rank.actual.parameter_dtypes for rank in run.ranks if rank.actual.parameter_dtypes), None)
    if dtypes is None:
        return None
    try:
        return sum(tensor_bytes(count, dtype) for dtype, count in dtypes.items())
    except InputError:
        return None  # an element type that this version does not know


def _speed(run: WholeRun) -> tuple[Compared, ...]:
    plan = run.plan.plan.speed if run.plan is not None else None
    slowest = most(rank.summary.seconds_median for rank in run.ranks)
    found = [
        Compared(
            name="step",
            predicted=None if plan is None else plan.step_seconds,
            low=None if plan is None else plan.step_seconds_low,
            high=None if plan is None else plan.step_seconds_high,
            measured=slowest,
        )
    ]
    samples = _rate(run.ranks, lambda step: step.samples)
    if samples is not None or plan is not None:
        found.append(
            Compared(
                name="samples/s",
                predicted=None if plan is None else plan.samples_per_second,
                measured=None if samples is None else samples,
            )
        )
    tokens = _rate(run.ranks, lambda step: step.tokens)
    predicted = None if plan is None else plan.tokens_per_second_per_gpu
    if tokens is not None or predicted is not None:
        per_rank = None if tokens is None or not run.ranks else tokens / len(run.ranks)
        found.append(Compared(name="tokens/s per rank", predicted=predicted, measured=per_rank))
    return tuple(found)


def _rate(ranks: Iterable[RankRecord], count: Callable[[StepRecord], int | None]) -> float | None:
    """Per second, all ranks together, from the median of each rank's recorded steps; the first is left out."""
    total, seen = 0.0, False
    for rank in ranks:
        rates = [
            amount / step.seconds for step in rank.steps[1:] if (amount := count(step)) is not None and step.seconds > 0
        ]
        if rates:
            total, seen = total + median(rates), True
    return total if seen else None


def _error(rank: RankRecord) -> str | None:
    if rank.error is None:
        return None
    place = "" if rank.error.file is None else f" at {rank.error.file}:{rank.error.line}"
    return f"{rank.error.type}: {rank.error.message}{place}"


def _line(rank: RankRecord, cpu: bool) -> RankLine:
    return RankLine(
        rank=rank.rank,
        device=rank.device,
        status=rank.status,
        steps=rank.summary.steps,
        peak_bytes=peak_of(rank, cpu),
        reserved_bytes=rank.summary.peak_reserved_bytes,
        device_used_bytes=rank.summary.peak_device_used_bytes,
        phases={name: peak for name in PHASES if (peak := _phase(rank, name, cpu)) is not None},
        step_seconds=rank.summary.seconds_median,
        last_loss=rank.summary.shown_loss,
        error=_error(rank),
    )
