"""Bus bandwidth of collectives, told and published.

    .venv/bin/python -m benchmarks.told.bus_bandwidth FILE

FILE: published tables (`tables`: lists of bytes and busbw by machine; `large_scale_plot_reads`: MiB and busbw read from
charts). Writes benchmarks/results/bus_bandwidth.md. Bus bandwidth as nccl-tests counts it (doc/PERFORMANCE.md). Exit
code 2 where FILE holds no such tables.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.speed.collectives import call_seconds, wire_factor
from gpu_plan.planner.speed.model import Collective, CollectiveKind

_SMALLEST = 2**20
"""Bytes from which on a call's time is its wire's rather than the launch's."""
_SHOWN = (2**20, 2**24, 2**26, 2**28, 2**30, 2**33)
_HEAD = """# Bus bandwidth, told and published

Written by `python -m benchmarks.told.bus_bandwidth` over tables that others printed of nccl-tests and torch, and charts
read to 5 GB/s. Errors are of told / published - 1, messages of 1 MiB and more; *inside*: between the told ends. *Used*:
what the speed model has of the table (planner/speed/collectives.toml).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How a published table's machine is asked for."""

    spec: str
    network: str | None = None
    node_gb_per_s: float | None = None
    """Of all links of a node, where the machine's name does not tell."""
    used: str = "nothing"

    @property
    def cluster(self) -> Cluster:
        """With what is said of its network."""
        made = parse_cluster(self.spec)
        rate = made.gpu.network_bytes_per_s
        if self.node_gb_per_s is not None:
            rate = self.node_gb_per_s * 1e9 / made.gpus_per_node
        network = self.network or made.gpu.network
        return replace(made, gpu=replace(made.gpu, network_bytes_per_s=rate, network=network))


_MACHINES: Mapping[tuple[str, int | None, str], Machine] = {
    ("a100_sxm_80", 8, ""): Machine(spec="8xA100-80GB"),
    ("h200_sxm", 8, ""): Machine(spec="8xH200"),
    ("b200", 8, ""): Machine(spec="8xB200"),
    ("h100_sxm (p5)", 8, ""): Machine(spec="p5.48xlarge", used="the spread of one node"),
    ("b200", 32, "EFA v4"): Machine(spec="4xp6-b200.48xlarge", used="share of the links, wait of EFA's tree"),
    ("h100_sxm", 64, "InfiniBand NDR + SHARP"): Machine(
        spec="8x8xH100", network="infiniband-sharp", used="share of the links"
    ),
    ("gb200", 72, ""): Machine(spec="18x4xGB200"),
    ("gb200", 144, "InfiniBand"): Machine(spec="36x4xGB200", node_gb_per_s=400),
    ("gb200", 1440, "InfiniBand"): Machine(spec="360x4xGB200", node_gb_per_s=400),
    ("a100_sxm_80", 16, "EFA v1"): Machine(spec="2xp4de.24xlarge", used="latency"),
    ("h100_sxm", 16, "EFA v2"): Machine(spec="2xp5.48xlarge", used="latency, wait of EFA's tree"),
    ("h200_sxm (p5en)", None, "EFA v3"): Machine(spec="16x8xH200", network="efa"),
    ("b200 (GCP a4-highgpu-8g)", None, "RoCE"): Machine(spec="2x8xB200", network="roce"),
    ("h100_sxm (GCP a3-megagpu-8g)", 16, "GPUDirect-TCPXO"): Machine(spec="2xa3-megagpu-8g", used="share of the links"),
    ("h100_sxm (GCP a3-highgpu-8g)", 16, "GPUDirect-TCPX"): Machine(spec="2xa3-highgpu-8g", used="share of the links"),
    ("b200 (Lambda)", 16, "InfiniBand"): Machine(spec="2x8xB200", used="latency, wait of the tree"),
    ("not printed (Nebius", 16, "InfiniBand"): Machine(spec="2x8xH200", used="latency, wait of the tree"),
}
"""By how the table's GPU begins or is called, its ranks, and how its network begins."""
_CHARTS = {
    "h100_nvlstree_32gpu": Machine(spec="4x8xH100", used="wait of the tree, loss by nodes"),
    "h100_nvlstree_8192gpu": Machine(spec="1024x8xH100", used="wait of the tree, loss by nodes"),
    "arxiv2411.13055_h100_4nodes": Machine(spec="4x8xH100", used="wait of the tree, loss by nodes"),
    "arxiv2411.13055_h100_512nodes": Machine(spec="512x8xH100", used="wait of the tree, loss by nodes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One message: bytes, and GB/s of bus bandwidth, published and told (slow, expected, fast)."""

    bytes: int
    published: float
    told: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one machine's collective reaches."""

    name: str
    used: str
    points: tuple[Point, ...]


def told(kind: CollectiveKind, num_bytes: int, cluster: Cluster) -> tuple[float, float, float]:
    """GB/s of bus bandwidth of one call of all ranks: slow, expected, fast."""
    call = Collective(kind=kind, bytes=num_bytes, phase="backward", per="step", overlap=True)
    wire = wire_factor(kind, cluster.world_size) * num_bytes / 1e9
    slow, expected, fast = (wire / seconds for seconds in call_seconds(call, cluster).bounds)
    return slow, expected, fast


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """Every table of which the machine is known."""
    for row in document["tables"]:
        machine = _machine(row)
        if machine is not None:
            kind: CollectiveKind = "all_gather" if str(row["op"]).startswith("all_gather") else "all_reduce"
            inter = f", {row['inter']}" if row["inter"] else ""
            points = [(line[0], line[-1]) for line in row["rows"]]
            yield _table(f"{kind}, {machine.spec}{inter}", machine, kind, points)
    charts = document["large_scale_plot_reads"]
    for name, machine in _CHARTS.items():
        points = [(mib * 2**20, busbw) for mib, busbw in charts[name]]
        yield _table(f"all_reduce, {machine.spec}, {name.partition('_h100')[0]} (chart)", machine, "all_reduce", points)


def _machine(row: Mapping[str, Any]) -> Machine | None:
    return next(
        (
            machine
            for (gpu, ranks, inter), machine in _MACHINES.items()
            if _is_called(str(row["gpu"]), gpu) and row["gpus"] == ranks and _begins(row["inter"], inter)
        ),
        None,
    )


def _is_called(printed: str, gpu: str) -> bool:
    return printed == gpu or (gpu.startswith("not printed") and printed.startswith(gpu))


def _begins(printed: str | None, inter: str) -> bool:
    return (printed or "").startswith(inter) if inter else not printed


def _table(name: str, machine: Machine, kind: CollectiveKind, points: list[tuple[int, float]]) -> Table:
    made = machine.cluster
    found = (
        Point(bytes=size, published=busbw, told=told(kind, size, made))
        for size, busbw in points
        if busbw and size >= _SMALLEST
    )
    return Table(name=name, used=machine.used, points=tuple(found))


def page(found: list[Table]) -> str:
    """Markdown."""
    sizes = " | ".join(_size(size) for size in _SHOWN)
    lines = [_HEAD, f"| table | used | messages | median | bias | inside | told / published GB/s: {sizes} |"]
    lines.append("|---" * (6 + len(_SHOWN)) + "|")
    for one in found:
        cells = [one.name, one.used, *_figures(list(one.points)), *(_cell(one, size) for size in _SHOWN)]
        lines.append(f"| {' | '.join(cells)} |")
    every = [point for one in found for point in one.points]
    unused = [point for one in found if one.used == "nothing" for point in one.points]
    for name, points in (("all", every), ("of which nothing is used", unused)):
        lines.append(f"| *{name}* | | {' | '.join(_figures(points))} |{' |' * len(_SHOWN)}")
    return "\n".join(lines) + "\n"


def _figures(points: list[Point]) -> list[str]:
    errors = [point.told[1] / point.published - 1 for point in points]
    inside = sum(point.told[0] <= point.published <= point.told[2] for point in points) / len(points)
    return [str(len(points)), f"{median(map(abs, errors)):.0%}", f"{median(errors):+.0%}", f"{inside:.0%}"]


def _cell(table: Table, size: int) -> str:
    near = next((point for point in table.points if abs(point.bytes / size - 1) < 0.1), None)
    return "" if near is None else f"{near.told[1]:.0f} / {near.published:.0f}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes // 2**30} GiB" if num_bytes >= 2**30 else f"{num_bytes // 2**20} MiB"


def main(arguments: list[str] | None = None) -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.told.bus_bandwidth", allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        found = list(tables(json.loads(given.file.read_text())))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        print(f"bus_bandwidth: error: {given.file}: no published tables ({type(problem).__name__})", file=sys.stderr)
        return 2
    text = page(found)
    (RESULTS / "bus_bandwidth.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
