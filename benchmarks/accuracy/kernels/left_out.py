"""What one device's measured operators tell of another: every device left out in turn.

    .venv/bin/python -m benchmarks.accuracy.kernels.left_out [--measured FOLDER]

Attention of many heads needs no file: its tables are the planner's own. FOLDER holds aiconfigurator's tables of
products (`GPU--gemm.csv.gz`: gemm_dtype, m, n, k, microseconds) and of attention (`GPU--attention_prefill.csv.gz`:
batch_size, isl, num_heads, head_dim, microseconds); with it benchmarks/results/left_out.md is written. Exit code 2
where there is none.
"""

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from benchmarks.accuracy.kernels import waits
from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed import attention, rates
from gpu_plan.planner.trace.events import FloatArray

_OUT = Path(__file__).parents[2] / "results" / "left_out.md"
_TABLES = {
    "a100_sxm": ("a100-sxm-80", 40), "h100_sxm": ("h100-sxm-80", 50), "h200_sxm": ("h200-sxm", 50),
    "b200_sxm": ("b200", 126), "b300_sxm": ("b300", 126), "gb200": ("gb200", 126), "gb300": ("gb300", 126),
    "l40s": ("l40s", 96), "rtx_pro_6000_server": ("rtx-pro-6000-server", 128),
}  # fmt: skip
"""Device and megabytes of its L2."""
_ROWS = ((1, 1), (2, 16), (17, 64), (65, 256), (257, 1024))
_HEAD = """# One device's operators told by the others'

Written by `python -m benchmarks.accuracy.kernels.left_out --measured FOLDER` over aiconfigurator's tables
(ai-dynamo/aiconfigurator@095f58a, Apache-2.0). Errors are of told / measured − 1; a device that is left out is told by
those of its architecture, else by all.
"""
Shares = Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Products of bf16 of one device: rows, columns, inner size and microseconds, one row each."""

    gpu: Gpu
    l2_bytes: float
    shapes: FloatArray

    def of(self, fewest: int, most: int) -> "Products":
        """Those of so many rows whose weights no L2 holds."""
        m, n, k, _ = self.shapes.T
        return replace(self, shapes=self.shapes[(m >= fewest) & (m <= most) & (2 * n * k > 1.2 * self.l2_bytes)])

    def errors(self, bytes_per_s: float) -> FloatArray:
        """Of the roofline with weights at so many bytes per second."""
        m, n, k, micros = self.shapes.T
        flops, moved = 2 * m * n * k, 2 * (m * n + m * k + n * k)
        share = rates.complete_shares("16-bit")[self.gpu.id][1]
        arithmetic = flops / (share * self.gpu.peak_flops["bfloat16"])
        seconds = (
            rates.beside_each_other(arithmetic, moved / bytes_per_s, np.zeros(len(m), np.bool_))
            + rates.kernel_overhead_seconds()
        )
        return np.asarray(seconds / (micros * 1e-6) - 1, dtype=np.float64)


def told_attention() -> Iterator[tuple[str, str, float, float]]:
    """Device, pass, and errors: by shares of the peak, by rates beside the device's own products."""
    products = rates.complete_shares("16-bit")
    catalog = load_gpus()
    for kernel in ("flash", "cudnn"):
        for direction in ("forward", "backward"):
            known = attention.known_shares(kernel, direction, True, 4096, attention.USUAL_HEAD)  # type: ignore[arg-type]
            for gpu_id, (_, own, _) in known.items():
                others = {other: shares for other, shares in known.items() if other != gpu_id}
                by_peak = rates.own_or_kin(catalog[gpu_id], others, "").expected
                beside = {other: (s[1] / products[other][1],) * 3 for other, s in others.items() if other in products}
                by_product = _median(catalog[gpu_id], beside) * products[gpu_id][1]
                yield gpu_id, f"{kernel} {direction}", by_peak / own - 1, by_product / own - 1


def _median(gpu: Gpu, known: Shares) -> float:
    """Of the device's architecture, else of all: no share, so without own_or_kin's bound of one."""
    kin = [shares[1] for other, shares in known.items() if load_gpus()[other].architecture == gpu.architecture]
    return median(kin or [shares[1] for shares in known.values()])


def told_products(folder: Path) -> Iterator[tuple[str, str, list[float]]]:
    """Device, rows, and median and 90th percentile of the errors: by copies' rate, by own products, by others'."""
    known = rates.streaming_shares()
    for table, (gpu_id, megabytes) in _TABLES.items():
        products = read(folder / f"{table}--gemm.csv.gz", load_gpus()[gpu_id], megabytes * 1e6)
        gpu = products.gpu
        assert gpu.bandwidth_bytes_per_s is not None
        others = {other: shares for other, shares in known.items() if other != gpu_id}
        ways = (
            rates.memory_rate(gpu).expected,
            known[gpu_id][1] * gpu.bandwidth_bytes_per_s,
            rates.own_or_kin(gpu, others, "").expected * gpu.bandwidth_bytes_per_s,
        )
        for fewest, most in _ROWS:
            some = products.of(fewest, most)
            errors = [np.abs(some.errors(way)) for way in ways]
            told = [float(value) for one in errors for value in (np.median(one), np.quantile(one, 0.9))]
            yield gpu_id, f"{fewest} to {most}" if most > 1 else "1", told


def read(path: Path, gpu: Gpu, l2_bytes: float) -> Products:
    """A table. InputError where it is none."""
    try:
        with gzip.open(path, "rt") as file:
            rows = [
                [float(row[name]) for name in ("m", "n", "k", "microseconds")]
                for row in csv.DictReader(file)
                if row["gemm_dtype"] == "bfloat16"
            ]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: no table of products ({type(problem).__name__})") from problem
    if not rows:
        raise InputError(f"{path}: holds no product in bfloat16")
    return Products(gpu=gpu, l2_bytes=l2_bytes, shapes=np.array(rows))


def page(folder: Path | None) -> str:
    """Markdown."""
    found = list(told_attention())
    parts = [_HEAD, "## Attention, causal, 4,096 tokens, head dimension 128\n"]
    parts += ["| device | kernel | by share of peak | beside its own products |\n|---|---|---|---|"]
    parts += [f"| {gpu} | {kind} | {by_peak:+.0%} | {beside:+.0%} |" for gpu, kind, by_peak, beside in found]
    peak, product = ([abs(row[column]) for row in found] for column in (2, 3))
    parts += [f"| *mean of the absolute ones* | | {fmean(peak):.1%} | {fmean(product):.1%} |"]
    parts += [f"| *median* | | {median(peak):.1%} | {median(product):.1%} |"]
    if folder is not None:
        parts += ["\n## Products of few rows, weights that no L2 holds\n"]
        parts += ["Median and 90th percentile of the absolute errors.\n"]
        parts += ["| device | rows | memory's rate by copies | | own products | | others' products | |"]
        parts += ["|---|---|---|---|---|---|---|---|"]
        rows = list(told_products(folder))
        parts += [f"| {gpu} | {m} | {' | '.join(f'{value:.0%}' for value in told)} |" for gpu, m, told in rows]
        means = [fmean(told[column] for _, _, told in rows) for column in range(6)]
        parts += [f"| *mean* | | {' | '.join(f'{value:.0%}' for value in means)} |"]
        parts += _waits(folder)
    return "\n".join(parts) + "\n"


def _waits(folder: Path) -> list[str]:
    """Attention of few heads and samples, on devices whose multiprocessors are known."""
    known = [(table, gpu_id) for table, (gpu_id, _) in _TABLES.items() if load_gpus()[gpu_id].sm_count]
    tables = {gpu_id: waits.read(folder / f"{table}--attention_prefill.csv.gz", gpu_id) for table, gpu_id in known}
    parts = ["\n## Attention of 4 to 64 samples x heads, causal, 1,024 to 8,192 tokens\n"]
    parts += ["Median absolute errors beside the rate of many; others: of the same architecture where there are any.\n"]
    parts += [
        "| device | head dimension | blocks waited for | none | own blocks | others' |\n|---|---|---|---|---|---|"
    ]
    for gpu_id, size, blocks, errors in waits.told(tables):
        parts += [f"| {gpu_id} | {size} | {blocks:.2f} | {' | '.join(f'{error:.0%}' for error in errors)} |"]
    return parts


def main(arguments: list[str] | None = None) -> int:
    """Prints the page; writes it where products were read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.kernels.left_out", allow_abbrev=False)
    parser.add_argument("--measured", type=Path, metavar="FOLDER", help="tables of products")
    folder = parser.parse_args(arguments).measured
    try:
        text = page(folder)
    except PlanError as problem:
        print(f"left_out: error: {problem}", file=sys.stderr)
        return 2
    if folder is not None:
        _OUT.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
