"""A server's figures in words, the same in every report. Nothing here knows a format."""

from collections.abc import Mapping

from gpu_plan.planner.plan.document import Candidate, SpeedFigures
from gpu_plan.planner.plan.serving import ServingFigures
from gpu_plan.planner.units import GIB, format_bytes, format_gib
from gpu_plan.reports.durations import seconds


def job_words(workload: Mapping[str, object]) -> list[str]:
    """`serve with vllm`, context, what is asked, types."""
    pieces = [f"serve with {workload['server']}", f"context {workload['context']}"]
    count = workload["concurrency"]
    pieces.append(f"{count} {'request' if count == 1 else 'requests'} at once")
    share = workload["utilization"]
    pieces.append("its own share" if share is None else f"utilisation {share:g}")
    pieces.append(str(workload["precision"]))
    if workload.get("quantize") not in (None, "none"):
        pieces.append(f"{workload['quantize']} weights")
    if workload.get("kv_dtype") != "auto":
        pieces.append(f"{workload['kv_dtype']} KV cache")
    return pieces


def shape_words(candidate: Candidate) -> list[str]:
    """What a replica is asked to hold, and what is computed at once."""
    figures = candidate.serving
    assert figures is not None
    asked = candidate.strategy.micro_batch_size
    each = f" by each of {figures.replicas} replicas" if figures.replicas > 1 else ""
    return [
        f"{asked} {'request' if asked == 1 else 'requests'} to hold{each}",
        f"at most {figures.max_sequences:,} sequences and {figures.max_batched_tokens:,} tokens in a batch",
    ]


def lines(candidate: Candidate) -> list[list[str]]:
    """What a server adds to a candidate: its share, its cache, what it holds."""
    figures = candidate.serving
    return [] if figures is None else [share_words(figures), cache_words(figures), limit_words(figures)]


def share_words(figures: ServingFigures) -> list[str]:
    """How the share of the device is spent."""
    rest = (
        ("buffers", figures.buffer_bytes),
        ("largest batch", figures.activation_bytes),
        ("CUDA graphs", figures.graph_bytes),
        ("beside torch", figures.outside_bytes),
    )
    spent = ", ".join(f"{name} {_gib(size)}" for name, size in rest if size)
    weights = f"of it weights {_gib(figures.weight_bytes)}"
    takes = f"{figures.title} {figures.version} takes {_gib(figures.requested_bytes)} GiB"
    if figures.beside:
        return [f"{takes} for weights and cache (a share of {figures.share:g})", weights, f"beside it {spent}"]
    return [takes, f"{weights}, {spent}" if spent else weights]


def cache_words(figures: ServingFigures) -> list[str]:
    """The cache in GiB, blocks and tokens."""
    low, high = _gib(max(0, figures.available_low_bytes)), _gib(max(0, figures.available_high_bytes))
    between = f" ({low} to {high})" if low != high else ""
    return [
        f"{_gib(max(0, figures.available_bytes))} GiB{between} for the KV cache",
        *([] if figures.block_tokens == 1 else [f"{figures.blocks:,} blocks of {format_bytes(figures.block_bytes)}"]),
        f"{figures.cache_tokens:,} tokens",
    ]


def limit_words(figures: ServingFigures) -> list[str]:
    """The largest concurrency and context, and what is left over."""
    low, high = figures.max_concurrency_low, figures.max_concurrency_high
    between = f" ({low:.1f} to {high:.1f})" if f"{low:.1f}" != f"{high:.1f}" else ""
    each = " in each replica" if figures.replicas > 1 else ""
    pieces = [f"holds {figures.max_concurrency:.1f} requests of full context{each}{between}"]
    if figures.replicas > 1:
        pieces.append(f"{figures.held_requests:,} in all")
    if figures.max_context:
        pieces.append(f"context up to {figures.max_context:,} with what is asked")
    return [*pieces, f"{_gib(figures.left_over_bytes)} GiB left to others"]


def speed_words(speed: SpeedFigures) -> list[str]:
    """How fast it is at most."""
    low, high = seconds(speed.step_seconds_low), seconds(speed.step_seconds_high)
    between = f" ({low} to {high})" if low != high else ""
    return [
        f"decode at least {seconds(speed.step_seconds)} a step{between} to read weights and cache and join ranks",
        f"at most {speed.samples_per_second:,.0f} tokens/s in all",
    ]


def _gib(num_bytes: int) -> str:
    return format_gib(num_bytes, 1 if num_bytes == 0 or num_bytes >= GIB // 10 else 2)
