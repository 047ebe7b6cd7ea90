"""An inference run's figures against its plan's: memory by device, load, prefill and decode."""

from collections.abc import Iterable

from gpu_plan.executor.records.rank import DeviceMemory, InferenceFigures, RankRecord
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.plan.document import Candidate
from gpu_plan.reports.run.figures import Compared, RankLine, most

SECONDS = frozenset({"prefill of a batch", "decode step", "load"})
"""Figures of time; other speeds are rates."""
PHASES = ("load", "prefill", "decode")
RESIDENT = (
    "on a CPU measured is resident memory at its peak less what the process held before the first weight was read"
    " (interpreter and libraries): weights, KV cache, activations, and the pages of weight files that were touched"
)
_SHORTER = "prompts were shorter than the plan's {planned:,} tokens each: the plan's figures are those at full context"


def is_inference(run: WholeRun) -> bool:
    """Whether prompts were run, by the ranks' records or the plan."""
    planned = run.plan is not None and run.plan.workload.get("task") == "infer"
    return planned or any(rank.inference is not None for rank in run.ranks)


def memory(run: WholeRun) -> tuple[Compared, ...]:
    """Weights and peak of each device, of the rank that has most of each."""
    planned = _planned(run)
    found = []
    for device in dict.fromkeys((*planned, *(one.device for rank in run.ranks for one in _devices(rank)))):
        expected = planned.get(device, (None, None))
        seen = [(rank, one) for rank in run.ranks for one in _devices(rank) if one.device == device]
        weights = most(one.weight_bytes for _, one in seen)
        if expected[0] or weights:
            found.append(Compared(name=f"{device} weights", predicted=expected[0], measured=weights))
        peak = most(_above(rank, one, one.peak_bytes) for rank, one in seen)
        if peak is not None or expected[1]:
            found.append(Compared(name=f"{device} peak", predicted=expected[1], measured=peak, comparable=_full(run)))
    return tuple(found)


def _planned(run: WholeRun) -> dict[str, tuple[int | None, int | None]]:
    """Weights and peak by device; without a map, those of the worst device."""
    plan = None if run.plan is None else run.plan.plan
    if plan is None:
        return {}
    if plan.placement is not None and plan.placement.devices and plan.strategy.pipeline_parallel == 1:
        cpu = _on_cpu(run)
        return {_device(one.device, cpu): (one.weight_bytes, one.peak_bytes) for one in plan.placement.devices}
    figures = plan.inference
    names = [one.device for rank in run.ranks for one in _devices(rank) if one.device not in ("cpu", "disk")]
    if figures is None or not run.ranks:
        return {}
    peak = max(figures.load_peak_bytes, figures.prefill_peak_bytes, figures.decode_peak_bytes)
    return dict.fromkeys(names or ["cpu"], (figures.weight_bytes, peak))


def phases(run: WholeRun) -> tuple[Compared, ...]:
    """Peak of the worst device while the weights are loaded, and in prefill and decode."""
    figures = None if run.plan is None else run.plan.plan.inference
    planned = {} if figures is None else {
        "load": figures.load_peak_bytes, "prefill": figures.prefill_peak_bytes, "decode": figures.decode_peak_bytes
    }  # fmt: skip
    found = []
    for phase in PHASES:
        measured = most(phase_peak(rank, phase) for rank in run.ranks)
        if measured is not None or phase in planned:
            same = phase == "load" or _full(run)
            found.append(Compared(name=phase, predicted=planned.get(phase), measured=measured, comparable=same))
    return tuple(found)


def phase_peak(rank: RankRecord, phase: str) -> int | None:
    """Highest bytes of any one device of a rank in a phase; on a CPU above what stood before the weights."""
    devices = [one for one in _devices(rank) if one.device != "disk"]
    gpus = [one for one in devices if one.device != "cpu"]
    found = most(_above(rank, one, one.phases.get(phase)) for one in gpus or devices)
    return None if found is None else int(found)


def speed(run: WholeRun) -> tuple[Compared, ...]:
    """Seconds of a batch's prefill and of a decode step, the slowest rank's; tokens per second of all together."""
    candidate = None if run.plan is None else run.plan.plan
    figures = None if candidate is None else candidate.inference
    seen = [rank.inference for rank in run.ranks if rank.inference is not None and rank.inference.timed_batches]
    prefill = most(one.prefill_seconds / one.timed_batches for one in seen)
    step = most(one.decode_seconds / one.decode_steps for one in seen if one.decode_steps)
    rate = _tokens_per_second(candidate, seen)
    full = _full(run)
    rows = (
        ("load", None, most(one.load_seconds for one in seen), True),
        ("prefill of a batch", None if figures is None else figures.prefill_seconds, prefill, full),
        ("decode step", None if figures is None else figures.decode_seconds, step, full),
        ("decode tokens/s", None if figures is None else figures.decode_tokens_per_second, rate, full),
    )
    return tuple(
        Compared(name=name, predicted=planned, measured=measured, comparable=same)
        for name, planned, measured, same in rows
        if planned is not None or measured is not None
    )


def line(rank: RankRecord, error: str | None) -> RankLine:
    """One rank; its steps are batches."""
    figures = rank.inference
    main = next((one for one in _devices(rank) if one.device not in ("cpu", "disk")), None)
    peaks = {phase: peak for phase in PHASES if (peak := phase_peak(rank, phase)) is not None}
    rate = None
    if figures is not None and figures.decode_seconds > 0:
        rate = figures.decode_tokens / figures.decode_seconds
    return RankLine(
        rank=rank.rank,
        device=rank.device if main is None else main.device,
        status=rank.status,
        steps=rank.summary.steps,
        peak_bytes=max(peaks.values(), default=None),
        reserved_bytes=None,
        device_used_bytes=None,
        phases=peaks,
        step_seconds=rank.summary.seconds_median,
        last_loss=None,
        error=error,
        tokens_per_second=rate,
    )


def notes(run: WholeRun) -> list[str]:
    """What is to be said of how the figures were come by."""
    found = [RESIDENT] if _on_cpu(run) else []
    if run.plan is not None and run.plan.plan.inference is not None and run.ranks and not _full(run):
        found.append(_SHORTER.format(planned=run.plan.plan.inference.prompt_tokens))
    return found


def batch_words(run: WholeRun) -> str:
    """`batch 4, context 8,192 with 512 new tokens`."""
    if run.plan is None:
        return ""
    workload, size = run.plan.workload, run.plan.plan.strategy.micro_batch_size
    context, new = workload.get("context"), workload.get("new_tokens")
    return f"batch {size}, context {context} with {new} new tokens"


def _tokens_per_second(plan: Candidate | None, ranks: list[InferenceFigures]) -> float | None:
    """All replicas together: ranks of one replica make the same tokens."""
    rates = [one.decode_tokens / one.decode_seconds for one in ranks if one.decode_seconds > 0]
    if not rates:
        return None
    if plan is None or plan.strategy.data_parallel == 1:
        return min(rates)
    per_replica = plan.strategy.world_size // plan.strategy.data_parallel
    return sum(rates) / per_replica


def _full(run: WholeRun) -> bool:
    """Whether every batch had the plan's prompt length: only then do its figures mean this run."""
    figures = None if run.plan is None else run.plan.plan.inference
    if figures is None or run.plan is None:
        return True
    size = run.plan.plan.strategy.micro_batch_size
    whole = [rank.inference for rank in run.ranks if rank.inference is not None]
    return all(one.prefill_tokens == one.timed_batches * size * figures.prompt_tokens for one in whole)


def _devices(rank: RankRecord) -> Iterable[DeviceMemory]:
    return () if rank.inference is None else rank.inference.devices


def _above(rank: RankRecord, device: DeviceMemory, peak: int | None) -> int | None:
    if peak is None or device.device != "cpu" or rank.inference is None:
        return peak
    return max(0, peak - rank.inference.libraries_bytes)


def _on_cpu(run: WholeRun) -> bool:
    return bool(run.ranks) and not any(one.device.startswith("cuda") for rank in run.ranks for one in _devices(rank))


def _device(word: str, cpu: bool) -> str:
    """A plan for CPU processes calls the first of them `cuda:0`."""
    return "cpu" if cpu and word.startswith("cuda") else word
