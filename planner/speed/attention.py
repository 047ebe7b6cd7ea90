"""What fused attention achieves: by kernel, pass, head dimension, causality and length, out of efficiency.toml.

A kernel gives each multiprocessor 128 queries of one head and sample at a time; with few heads and samples the last
ones are waited for while others are idle.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed.model import Kernel
from gpu_plan.planner.speed.rates import Rate, burst_share, complete_shares, efficiency_data, is_like, own_or_kin, sure
from gpu_plan.planner.units import median

Direction = Literal["forward", "backward"]

USUAL_HEAD = 128

_QUERIES = 128
"""Queries that one multiprocessor takes at a time (Dao-AILab/flash-attention csrc: kBlockM)."""
_CHARTS = ("flash2-a100", "flash2-h100", "flash3-fwd", "flash3-paper")
_CHARTED = 16384 * 2048
"""Their tokens in all samples, by the elements of a token's heads (flash-attention
benchmarks/benchmark_flash_attention.py: bs_seqlen_vals, dim)."""
_MULTIPLIED: dict[Direction, int] = {"forward": 4, "backward": 10}
"""FLOPs for each query, key and element of a head: two products forward, five backward."""


def attention_share(
    gpu: Gpu, *, kernel: Kernel, direction: Direction, causal: bool, seq_len: int, head_dim: int = USUAL_HEAD
) -> Rate:
    """Share of the 16-bit peak that fused attention reaches; masked halves of causal kernels do not count."""
    if gpu.is_cpu:
        return sure(1.0, "assumed", "")
    known = known_shares("flash" if kernel == "flash1" else kernel, direction, causal, seq_len, head_dim)
    found = own_or_kin(gpu, _by_product(gpu, known), f"attention {direction}")
    if gpu.id not in known:
        found = _told_by_others(found)
    if kernel != "flash1":
        return found
    share = median(row["share"] for row in efficiency_data()["first_flash"])
    return Rate(
        slow=found.slow * share,
        expected=found.expected * share,
        fast=found.expected,
        basis=found.basis,
        note=f"{found.note}; the first FlashAttention reaches {share:.0%} of that",
    )


def _told_by_others(found: Rate) -> Rate:
    """At least as uncertain as the measured devices are, each told by the others; kin may be one device."""
    error = 1 + efficiency_data()["attention_elsewhere"]["error"]
    slow, fast = min(found.slow, found.expected / error), max(found.fast, found.expected * error)
    return replace(found, slow=slow, fast=fast)


def waited_flops(
    gpu: Gpu, *, kernel: Kernel, direction: Direction, causal: bool, seq_len: int, head_dim: int
) -> tuple[float, float, float]:
    """FLOPs, counted in full, that the device could do while a call waits for its last blocks: most, usual, fewest.

    A block is as many queries as a multiprocessor takes, beside every key; a causal one computes half of what is
    counted for it in the mean, the longest all. 0 where the multiprocessors are not known.
    """
    if gpu.is_cpu or not gpu.sm_count or seq_len < _QUERIES:
        return 0.0, 0.0, 0.0
    block = _MULTIPLIED[direction] * _QUERIES * seq_len * head_dim * (2 if causal else 1)
    slow, expected, fast = _blocks_waited(gpu, kernel, direction, head_dim)
    return tuple(blocks * gpu.sm_count * block for blocks in (slow, expected, fast))  # type: ignore[return-value]


def _blocks_waited(gpu: Gpu, kernel: str, direction: str, head_dim: int) -> tuple[float, float, float]:
    """Blocks that a call waits for: of the device's own table, else of devices with multiprocessors like its own; a
    pass of which they have none by their other one. No other device tells of these: expected none, at most what
    others do."""
    rows = [row for row in efficiency_data()["waiting"] if row["pass"] == direction]
    near = [row for row in rows if row["gpu"] == gpu.id] or [
        row for row in rows if gpu.compute_capability is not None and is_like(load_gpus()[row["gpu"]], gpu)
    ]
    if not near and direction == "backward":
        ahead = _blocks_waited(gpu, kernel, "forward", head_dim)
        back = backward_blocks()
        return ahead[0] * max(back), ahead[1] * median(back), ahead[2] * min(back)
    if not near:
        return max(row["blocks"] for row in rows), 0.0, 0.0

    def distance(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row["kernel"] != kernel, abs(math.log2(row["head_dim"] / head_dim))

    nearest = min(map(distance, near))
    expected = median(row["blocks"] for row in near if distance(row) == nearest)
    every = [row["blocks"] for row in near]
    return max(every), expected, min(every)


@functools.cache
def backward_blocks() -> tuple[float, ...]:
    """Blocks backward over those forward, of kernels of which both were measured."""
    rows = efficiency_data()["waiting"]
    return tuple(
        back["blocks"] / ahead["blocks"]
        for back in rows
        for ahead in rows
        if (back["pass"], ahead["pass"]) == ("backward", "forward")
        and all(back[key] == ahead[key] for key in ("gpu", "kernel", "head_dim"))
    )


def _by_product(gpu: Gpu, known: Mapping[str, tuple[float, float, float]]) -> Mapping[str, tuple[float, float, float]]:
    """What attention reaches on others, on a device without a table: as much beside its products as beside theirs.

    Each device with a table left out, that is 15 % off in the mean, its share of the peak 17 % (python -m
    benchmarks.accuracy.kernels.left_out).
    """
    products = complete_shares("16-bit")
    if gpu.id in known:
        return known
    own = burst_share(gpu).expected
    return {
        gpu_id: (
            slow * own / products[gpu_id][1],
            expected * own / products[gpu_id][1],
            fast * own / products[gpu_id][1],
        )
        for gpu_id, (slow, expected, fast) in known.items()
        if gpu_id in products
    }


@functools.lru_cache(maxsize=256)
def known_shares(
    kernel: str, direction: Direction, causal: bool, seq_len: int, head_dim: int
) -> Mapping[str, tuple[float, float, float]]:
    """Slow, expected and fast share of the peak on every device with a table."""
    known = {}
    for gpu_id, rows in _rows().items():
        peak = load_gpus()[gpu_id].peak_flops["bfloat16"] / 1e12
        usable = [row for row in rows if row["pass"] in (direction, "both")]
        least, usual, most = 1.0, 1.0, 1.0
        if not usable:  # inference tables time forward alone
            usable, (least, usual, most) = list(rows), backward_over_forward()
        chosen = min(usable, key=_distance(kernel, direction, causal, head_dim))
        rates = [_of_many(row, seq_len) / peak for row in usable if row["head_dim"] == chosen["head_dim"]]
        known[gpu_id] = (min(rates) * least, _of_many(chosen, seq_len) * usual / peak, max(rates) * most)
    return known


def _of_many(row: Mapping[str, Any], seq_len: int) -> float:
    """TFLOP/s of so many heads and samples that no call waits for its last blocks: charts are of few of them."""
    measured, gpu = _at(row, seq_len), load_gpus()[row["gpu"]]
    head_dim: int = row["head_dim"]
    if row["source"] not in _CHARTS or not gpu.sm_count:
        return measured
    heads = _CHARTED / (seq_len * head_dim)
    direction = "forward" if row["pass"] == "forward" else "backward"
    blocks = _blocks_waited(gpu, row["kernel"], direction, head_dim)[1] * (2 if row["causal"] else 1)
    return measured * (1 + blocks * gpu.sm_count * _QUERIES / seq_len / heads)


@functools.cache
def _rows() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    by_gpu: dict[str, list[Mapping[str, Any]]] = {}
    for row in efficiency_data()["attention"]:
        by_gpu.setdefault(row["gpu"], []).append(row)
    return {gpu_id: tuple(rows) for gpu_id, rows in by_gpu.items()}


@functools.cache
def backward_over_forward() -> tuple[float, float, float]:
    """Least, median and greatest ratio of the two passes' rates, over kernels of which both were published."""
    found = []
    for rows in _rows().values():
        for back in (row for row in rows if row["pass"] == "backward"):
            key = ("kernel", "head_dim", "causal")
            ahead = [row for row in rows if row["pass"] == "forward" and all(row[k] == back[k] for k in key)]
            found += [_at(back, 4096) / _at(row, 4096) for row in ahead]
    return min(found), median(found), max(found)


def _distance(
    kernel: str, direction: str, causal: bool, head_dim: int
) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Orders rows by how much they are like what runs; the first entry weighs most.

    An inference engine's kernels stand for those of the device's own generation where nothing nearer has the head.
    """

    def distance(row: Mapping[str, Any]) -> tuple[bool | float, ...]:
        return (
            row["kernel"] not in (kernel, "engine"),
            abs(math.log2(row["head_dim"] / head_dim)),
            row["kernel"] != kernel,
            row["pass"] != direction,
            row["causal"] != causal,
        )

    return distance


def _at(row: Mapping[str, Any], seq_len: int) -> float:
    """TFLOP/s of a row at a sequence length, linear in its logarithm, flat beyond the ends."""
    lengths, rates = zip(*row["seq_tflops"], strict=True)
    return float(np.interp(np.log2(max(seq_len, 1)), np.log2(lengths), rates))
