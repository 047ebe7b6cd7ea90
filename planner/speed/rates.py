"""What a device achieves, out of efficiency.toml: slow, expected and fast rates with the reason for each."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.plain.facts import facts
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import FloatArray
from gpu_plan.planner.units import median

_BASES = ("measured", "source", "assumed")
_SIXTEEN_BIT = ("bfloat16", "float16")
_FEW_LANES = 2.5
"""Between tensor cores that add up in fp32 at half their rate, twice as fast as the float32 lanes, and whole ones, four
times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A positive number known within bounds (per second, or a share): slow <= expected <= fast."""

    slow: float
    expected: float
    fast: float
    basis: str
    note: str

    def times(self, factor: float) -> "Rate":
        """The same scaled by an exact number."""
        return Rate(
            slow=self.slow * factor,
            expected=self.expected * factor,
            fast=self.fast * factor,
            basis=self.basis,
            note=self.note,
        )

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.slow, self.expected, self.fast


def worst_basis(bases: Iterable[str]) -> str:
    """The weakest of several: `assumed` before `source` before `measured`."""
    return max(bases, key=_BASES.index, default="measured")


@functools.cache
def efficiency_data() -> dict[str, Any]:
    """efficiency.toml as it stands."""
    return facts(Path(__file__).with_name("efficiency.toml"))


# -- peaks -------------------------------------------------------------------------------------------------


def published_peak(gpu: Gpu, dtype: str) -> float | None:
    """Dense peak of a dtype, FLOP/s; None where nobody published one."""
    return gpu.peak_flops.get(peak_key(dtype))


def peak_key(dtype: str) -> str:
    """The name of a torch dtype among the peaks."""
    name = dtype.removeprefix("torch.")
    return "float8" if name.startswith("float8") else name


def usable_peak(gpu: Gpu, dtype: str) -> Rate:
    """Peak in which products of `dtype` run on this device, or the nearest that is known."""
    key = peak_key(dtype)
    if key in gpu.peak_flops:
        return sure(gpu.peak_flops[key], "measured", "")
    if key in _SIXTEEN_BIT and not gpu.is_cpu:
        if key == "float16" or gpu.supports_bf16:
            for other in _SIXTEEN_BIT:
                if other in gpu.peak_flops:
                    return sure(gpu.peak_flops[other], "source", f"{key} at the peak of {other}")
            if "float32" in gpu.peak_flops:
                ratio = _sixteen_bit_ratio(gpu.architecture)
                note = f"{key} peak of {gpu.short} assumed: {ratio:.1f} times its float32 peak"
                return sure(gpu.peak_flops["float32"] * ratio, "assumed", note)
        elif "float32" in gpu.peak_flops:
            return sure(gpu.peak_flops["float32"], "assumed", f"{gpu.short} emulates {key} in float32")
    if gpu.peak_flops:
        name, lowest = min(gpu.peak_flops.items(), key=lambda item: item[1])
        return sure(lowest, "assumed", f"{key} peak of {gpu.short} unknown, taken as that of {name}")
    assumed = efficiency_data()["cpu"]
    spread: float = assumed["spread"]
    flops = assumed["tflops"] * 1e12
    return Rate(
        slow=flops / spread,
        expected=flops,
        fast=flops * spread,
        basis="assumed",
        note=f"{gpu.short}: {assumed['tflops']:g} TFLOP/s assumed",
    )


def sure(value: float, basis: str, note: str) -> Rate:
    """A rate known without bounds."""
    return Rate(slow=value, expected=value, fast=value, basis=basis, note=note)


def _sixteen_bit_ratio(architecture: str) -> float:
    """Lowest published ratio of a 16-bit peak to the float32 one in the architecture (consumer parts)."""
    ratios = [
        gpu.peak_flops["float16"] / gpu.peak_flops["float32"]
        for gpu in load_gpus().values()
        if gpu.architecture == architecture and {"float16", "float32"} <= gpu.peak_flops.keys()
    ]
    return min(ratios, default=1.0)


# -- matrix products ---------------------------------------------------------------------------------------

_Shares = dict[tuple[str, str], dict[str, float]]


@functools.cache
def _matmul_shares() -> _Shares:
    """(gpu, float8 or 16-bit) -> share of the peak, by kind of row."""
    found: _Shares = {}
    for row in efficiency_data()["matmul"]:
        peak = load_gpus()[row["gpu"]].peak_flops[row["dtype"]]
        found.setdefault((row["gpu"], _width(row["dtype"])), {})[row["kind"]] = row["tflops"] * 1e12 / peak
    return found


@functools.cache
def _alone() -> frozenset[str]:
    """Devices whose rates are their power cap's and stand for no others of their architecture."""
    return frozenset(row["gpu"] for row in efficiency_data()["matmul"] if row.get("alone"))


def training_share(gpu: Gpu) -> tuple[float, float]:
    """Slow and expected share of a burst's rate that the products of a training step reach."""
    rows = efficiency_data()["training"]
    for row in rows:
        if is_like(gpu, load_gpus()[row["gpu"]]):
            return row["share"] * row["low"], row["share"]
    shares = [row["share"] for row in rows]
    return min(shares), median(shares)


def _own_share(gpu: Gpu) -> float | None:
    """Share of the peak of a training step's products where they were measured on this very device."""
    return next((row["of_peak"] for row in efficiency_data()["training"] if row["gpu"] == gpu.id), None)


def accumulating_share() -> Rate:
    """Share of a product's rate that one reaches which adds a weight's gradient to a buffer in fp32."""
    rows = efficiency_data()["accumulating"]
    return Rate(
        slow=min(row["low"] for row in rows),
        expected=median(row["share"] for row in rows),
        fast=1.0,
        basis="source",
        note="",
    )


def is_like(one: Gpu, other: Gpu) -> bool:
    """Of one architecture, and both of a data centre or neither, which the capability's first number tells."""
    if one.architecture != other.architecture:
        return False
    return one.compute_capability is None or one.compute_capability[:1] == (other.compute_capability or ())[:1]


def is_halved(gpu: Gpu) -> bool:
    """Whether tensor cores add up in fp32 at half their rate, twice the float32 lanes' peak: GeForce, L20, L40.

    They reach all of that peak whatever the architecture, since they do not draw what their board may take. Of three
    measured ones each is told by the others within 10 % in the mean, by its architecture within 24.
    """
    lanes = gpu.peak_flops.get("float32")
    if lanes is None or gpu.is_cpu or (gpu.compute_capability or (0, 0)) < (7, 0):
        return False
    return usable_peak(gpu, "float16").expected < _FEW_LANES * lanes


def products_of(gpu: Gpu, width: str) -> Mapping[str, tuple[float, float, float]]:
    """Shares of devices that tell something of this one's products: those whose tensor cores are alike, or all."""
    every, catalog = complete_shares(width), load_gpus()
    alike = {
        name: shares
        for name, shares in every.items()
        if name == gpu.id or (name not in _alone() and is_halved(catalog[name]) == is_halved(gpu))
    }
    return alike or every


def beside_each_other(
    arithmetic: FloatArray, traffic: FloatArray, grouped: NDArray[np.bool_], *, slow: bool = False
) -> FloatArray:
    """Seconds of products whose arithmetic and traffic each take so long alone: they delay each other where neither is
    much longer.

    Over nine devices' tables, 129 to 1,024 rows, the cubes' sum is 8 % off at the median and 20 % at the 90th
    percentile, the longer of both 11 and 23 % (python -m benchmarks.accuracy.kernels.left_out). `grouped`: one call
    of many small products, whose tiles are few for each weight that they read (efficiency.toml: grouped); `slow`: of
    these, one after the other, which nine of ten are no slower than.
    """
    power = np.where(grouped, 1.0 if slow else efficiency_data()["grouped"]["power"], 3.0)
    return np.asarray((arithmetic**power + traffic**power) ** (1 / power), dtype=np.float64)


def misaligned_share() -> Rate:
    """Share of an aligned product's rate that one reaches whose rows begin at no multiple of 16 bytes, as tensor cores
    load them (NVIDIA, Matrix Multiplication Background: Tensor Core Requirements)."""
    row = efficiency_data()["misaligned"]
    return Rate(slow=row["slow"], expected=row["share"], fast=1.0, basis="source", note="")


def burst_share(gpu: Gpu, width: str = "16-bit") -> Rate:
    """Share of the dense peak that large products reach in bursts."""
    known = products_of(gpu, width)
    found = own_or_kin(gpu, known, "matrix products in bursts")
    if gpu.id in known or not is_halved(gpu) or found.basis == "source":
        return found
    note = f"{found.note.partition(',')[0]}, the median of {len(known)} devices whose tensor cores are halved alike"
    return replace(found, basis="source", note=note)


def _width(dtype: str) -> str:
    return "float8" if peak_key(dtype) == "float8" else "16-bit"


@functools.cache
def _ratio_to_best(kind: str, width: str) -> float:
    """Median ratio of a kind of row to the best shape, over devices that have both."""
    return median(
        shares[kind] / shares["best"]
        for (_, row_width), shares in _matmul_shares().items()
        if row_width == width and {kind, "best"} <= shares.keys()
    )


def _complete(shares: Mapping[str, float], width: str) -> tuple[float, float, float]:
    best = shares.get("best", shares.get("typical", 0.0) / _ratio_to_best("typical", width))
    typical = shares.get("typical", best * _ratio_to_best("typical", width))
    small = shares.get("small", best * _ratio_to_best("small", width))
    return min(small, typical), typical, max(best, typical)


@functools.cache
def complete_shares(width: str) -> Mapping[str, tuple[float, float, float]]:
    """Small, typical and best share of the peak of every measured device."""
    return {
        gpu_id: _complete(shares, width)
        for (gpu_id, row_width), shares in _matmul_shares().items()
        if row_width == width
    }


def matmul_share(gpu: Gpu, dtype: str) -> Rate:
    """Share of the dense peak that large matrix products of a training step reach."""
    if gpu.is_cpu:
        return sure(1.0, "assumed", "")
    known = products_of(gpu, _width(dtype))
    exact = peak_key(dtype) not in ("float32", "tf32")
    burst = burst_share(gpu, _width(dtype))
    slow, expected = training_share(gpu)
    if gpu.id in known and (own := _own_share(gpu)) is not None:
        expected = own / burst.expected
    found = Rate(
        slow=min(burst.slow, min(typical for _, typical, _ in _rows(gpu, known)) * slow),
        expected=burst.expected * expected,
        fast=burst.fast,
        basis=worst_basis((burst.basis, "source")),
        note=f"{burst.note}; {expected:.0%} of that in a training step",
    )
    if exact:
        return found
    note = f"{found.note}; no {peak_key(dtype)} rates are published, 16-bit ones taken"
    return Rate(slow=found.slow, expected=found.expected, fast=found.fast, basis="assumed", note=note)


def _rows(gpu: Gpu, known: Mapping[str, tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """The device's own figures, else those of devices like it, else its architecture's, else all."""
    if gpu.id in known:
        return [known[gpu.id]]
    catalog = load_gpus()
    similar = [shares for gpu_id, shares in known.items() if is_like(catalog[gpu_id], gpu)]
    kin = [shares for gpu_id, shares in known.items() if catalog[gpu_id].architecture == gpu.architecture]
    return similar or kin or list(known.values())


def own_or_kin(gpu: Gpu, known: Mapping[str, tuple[float, float, float]], what: str) -> Rate:
    """The device's own figures, else the median of its architecture's, else of all."""
    if gpu.id in known:
        slow, expected, fast = known[gpu.id]
        note = f"{what}: {expected:.0%} of peak, measured on {gpu.short}"
        return Rate(slow=slow, expected=expected, fast=fast, basis="measured", note=note)
    rows = _rows(gpu, known)
    similar = len(rows) < len(known)
    expected = median(row[1] for row in rows)
    of = f"{len(rows)} {gpu.architecture} devices" if similar else f"all {len(rows)} measured devices"
    return Rate(
        slow=min(row[0] for row in rows),
        expected=expected,
        fast=min(1.0, max(row[2] for row in rows)),  # own boost clocks are nobody else's
        basis="source" if similar else "assumed",
        note=f"{what}: {expected:.0%} of peak, the median of {of}",
    )


# -- memory and host ---------------------------------------------------------------------------------------


def memory_rate(gpu: Gpu) -> Rate:
    """Bytes per second of kernels that only move memory."""
    peak = gpu.bandwidth_bytes_per_s
    if peak is None:
        assumed = efficiency_data()["cpu"]
        rate = assumed["gb_per_s"] * 1e9
        return Rate(
            slow=rate / assumed["spread"],
            expected=rate,
            fast=rate * assumed["spread"],
            basis="assumed",
            note=f"{gpu.short}: {assumed['gb_per_s']:g} GB/s of memory assumed",
        )
    catalog = load_gpus()
    own: dict[str, list[float]] = {}
    for row in efficiency_data()["bandwidth"]:
        spec = catalog[row["gpu"]].bandwidth_bytes_per_s
        assert spec is not None  # a test holds it for every row
        own.setdefault(row["gpu"], []).append(row["gb_per_s"] * 1e9 / spec)
    every = [share for shares in own.values() for share in shares]
    known = {gpu_id: (min(every), median(shares), max(every)) for gpu_id, shares in own.items()}
    return own_or_kin(gpu, known, "memory traffic").times(peak)


def streaming_rate(gpu: Gpu) -> Rate | None:
    """Bytes per second of products that wait for their weights; None where the device's own bandwidth is not known.

    Nearer than `memory_rate`, which is of copies: each device with a table left out, others tell it within 6 % at the
    median (python -m benchmarks.accuracy.kernels.left_out).
    """
    peak = gpu.bandwidth_bytes_per_s
    if peak is None or gpu.is_cpu:
        return None
    return own_or_kin(gpu, streaming_shares(), "weights read by products").times(peak)


@functools.cache
def streaming_shares() -> Mapping[str, tuple[float, float, float]]:
    """Slow, expected and fast share of the bandwidth of every measured device."""
    found = {}
    for row in efficiency_data()["streaming"]:
        spec = load_gpus()[row["gpu"]].bandwidth_bytes_per_s
        assert spec is not None  # a test holds it for every row
        slow, expected, fast = (rate * 1e9 / spec for rate in row["gb_per_s"])
        found[row["gpu"]] = (slow, expected, fast)
    return found


def kernel_overhead_seconds() -> float:
    """Seconds between two kernels on the device."""
    seconds: float = efficiency_data()["overhead"]["kernel_us"] * 1e-6
    return seconds


def strided_rate(gpu: Gpu) -> Rate | None:
    """Elements of operands per second of kernels over tensors that lie apart; None where it is not known.

    Their addresses are integer arithmetic (torch aten/src/ATen/cuda/detail/OffsetCalculator.cuh), of which every
    multiprocessor since Volta does as much in a clock (CUDA C programming guide, throughput of arithmetic
    instructions): what was measured holds for others by multiprocessors and clock.
    """
    clocks = _multiprocessor_clocks(gpu)
    if clocks is None:
        return None
    found = []
    for row in efficiency_data()["strided"]:
        own = _multiprocessor_clocks(load_gpus()[row["gpu"]])
        assert own is not None  # a test holds it for every row
        found.append(row["elements"] / (row["ms"] * 1e-3) / own)
    return Rate(slow=min(found), expected=median(found), fast=max(found), basis="source", note="").times(clocks)


def _multiprocessor_clocks(gpu: Gpu) -> float | None:
    """Clocks per second of all multiprocessors together, out of the float32 peak: 64 or 128 lanes, two FLOP each."""
    capability, peak = gpu.compute_capability, gpu.peak_flops.get("float32")
    if capability is None or peak is None or capability < (7, 0):
        return None
    lanes = 64 if capability < (8, 6) else 128
    return peak / (2 * lanes)


def collective_sm_share(gpu: Gpu) -> Rate:
    """Share of the device's multiprocessors that a running collective takes from the computation beside it.

    As durations: `slow` is the largest. NCCL fills up to 32 of them (NCCL documentation, NCCL_MAX_CTAS).
    """
    most = efficiency_data()["overhead"]["nccl_sms"] / gpu.sm_count if gpu.sm_count else 0.0
    return Rate(slow=min(most, 1.0), expected=min(most / 2, 1.0), fast=0.0, basis="source", note="")


def host_memory_rate(devices: int) -> Rate:
    """Bytes per second of RAM under the CPU optimizer of one of a node's `devices`: an equal part, at most a slice."""
    host = efficiency_data()["host"]

    def part(bound: str) -> float:
        whole, most = host[f"memory_gb_per_s{bound}"], host[f"slice_gb_per_s{bound}"]
        return float(min(whole / devices, most) * 1e9)

    note = f"optimizer on the host: {part('') / 1e9:g} GB/s of RAM per device assumed"
    return Rate(slow=part("_slow"), expected=part(""), fast=part("_fast"), basis="assumed", note=note)


def host_copy_share() -> Rate:
    """Share of the host link's rate that pinned copies reach."""
    host = efficiency_data()["host"]
    share: float = host["copy_share"]
    note = f"host copies at {share:.0%} of the link"
    return Rate(slow=host["copy_share_slow"], expected=share, fast=1.0, basis="source", note=note)
