"""An inference plan's figures in words, the same in every report. Nothing here knows a format."""

from collections.abc import Mapping

from gpu_plan.planner.plan.document import Candidate, InferenceFigures, Placement, SpeedFigures, StrategyChoice
from gpu_plan.planner.units import GIB, format_bytes, format_gib, format_short
from gpu_plan.reports.durations import seconds

_KINDS = {"cpu": "CPU RAM", "disk": "disk"}


def job_words(workload: Mapping[str, object]) -> list[str]:
    """`context 8192 = 7680 prompt + 512 new tokens`, batch, types."""
    context, new = workload["context"], workload["new_tokens"]
    assert isinstance(context, int)
    assert isinstance(new, int)
    tokens = "token" if new == 1 else "tokens"
    pieces = ["infer", f"context {context} = {context - new} prompt + {new} new {tokens}", f"batch {workload['batch']}"]
    pieces.append(str(workload["precision"]))
    if workload.get("quantize") not in (None, "none"):
        pieces.append(f"{workload['quantize']} weights")
    if workload.get("chunk"):
        pieces.append(f"prompt in pieces of {workload['chunk']}")
    cache = [str(workload[name]) for name in ("cache", "kv_dtype") if workload.get(name) not in ("dynamic", "auto")]
    if cache:
        pieces.append(f"{' '.join(cache)} KV cache")
    return [*pieces, str(workload["attention"])]


def shape_words(choice: StrategyChoice) -> list[str]:
    """`batch 4 × 2 replicas = 8 samples at once`."""
    if choice.data_parallel == 1:
        return [f"batch {choice.micro_batch_size}"]
    batch, replicas = choice.micro_batch_size, choice.data_parallel
    return [f"batch {batch} × {replicas} replicas = {batch * replicas} samples at once"]


def phase_words(figures: InferenceFigures) -> list[str]:
    """Most allocated in each phase."""
    rows = (
        ("load", figures.load_peak_bytes),
        ("prefill", figures.prefill_peak_bytes),
        ("decode", figures.decode_peak_bytes),
    )
    peaks = ", ".join(f"{name} {_gib(size)}" for name, size in rows)
    return [f"peak GiB: {peaks}", f"weights {_gib(figures.weight_bytes)}", f"KV cache {_gib(figures.kv_cache_bytes)}"]


def limit_words(figures: InferenceFigures) -> list[str]:
    """How far context and batch can be taken."""
    pieces = []
    for name, value, words in (
        ("max_context", figures.max_context, "context up to {} tokens with this batch"),
        ("max_batch", figures.max_batch, "batch up to {} with this context"),
    ):
        if value is not None:
            end = {"positions": " (all its positions)", "searched": " or more"}.get(figures.limits.get(name, ""), "")
            pieces.append(words.format(f"{value:,}") + end)
    return pieces


def speed_words(figures: InferenceFigures, speed: SpeedFigures, basis: str) -> list[str]:
    """Prefill and decode, each with its rate; an estimate, never a measurement of this job."""
    low, high = seconds(speed.step_seconds_low), seconds(speed.step_seconds_high)
    step = seconds(speed.step_seconds)
    pieces = []
    if figures.prefill_seconds is not None and figures.prefill_tokens_per_second is not None:
        rate = figures.prefill_tokens_per_second
        pieces.append(f"prefill {seconds(figures.prefill_seconds)}, {_rate(rate)} tokens/s")
    if figures.decode_tokens_per_second is not None:
        between = f" ({low} to {high})" if low != high else ""
        pieces.append(f"decode {step} per step{between}, {_rate(figures.decode_tokens_per_second)} tokens/s")
    return [*pieces, basis]


def placement_words(placement: Placement) -> list[str]:
    """`cuda:0 14.2 GiB, CPU RAM 30.1 GiB; 1 boundary; 30.1 GiB copied per step`."""
    parts = [
        f"{_KINDS.get(entry.device, entry.device)} {_gib(entry.weight_bytes)}"
        for entry in placement.devices
        if entry.weight_bytes
    ]
    pieces = [f"weights, GiB: {', '.join(parts)}"]
    if placement.boundaries:
        pieces.append(f"{placement.boundaries} {'boundary' if placement.boundaries == 1 else 'boundaries'}")
    if placement.moved_bytes_per_step:
        pieces.append(f"{format_bytes(placement.moved_bytes_per_step)} copied in each step")
    if placement.optimal:
        pieces.append("proved optimal")
    return pieces


def lines(candidate: Candidate) -> list[list[str]]:
    """What inference adds to a candidate: phases, limits, placement."""
    if candidate.inference is None:
        return []
    found = [phase_words(candidate.inference), limit_words(candidate.inference)]
    if candidate.placement is not None and len(candidate.placement.devices) > 1:
        found.append(placement_words(candidate.placement))
    return [pieces for pieces in found if pieces]


def _gib(num_bytes: int) -> str:
    return "<0.1" if 0 < num_bytes < GIB // 20 else format_gib(num_bytes)


def _rate(value: float) -> str:
    return format_short(value)
