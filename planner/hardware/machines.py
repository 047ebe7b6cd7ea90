"""Machines known by name, with the RAM, disks and price of one node (machines.toml, and [platforms] of gpus.toml)."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_plan.planner.hardware.catalog import catalog_document
from gpu_plan.planner.hardware.gpu import Gpu, Price
from gpu_plan.planner.plain.facts import facts
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A machine known by name."""

    name: str
    gpu_id: str
    gpus_per_node: int
    host_ram_bytes: int
    host_ram_source: str
    nvme_bytes: int | None = None
    """Of local disks; None where nobody told."""
    network_bytes_per_s: float | None = None
    """Of all links of a node, one direction; None: what nodes of its GPU have."""
    network: str | None = None
    """What joins nodes, as `Gpu.network`."""
    provider: str = ""
    price: Price | None = None
    """Rent of the whole node on demand."""
    per_gpu: bool = False
    """Whether it is sold by the GPU, with RAM and price in proportion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualRam:
    """RAM that a node has at least where it was not said."""

    bytes: int
    source: str


@functools.cache
def load_platforms() -> dict[str, Platform]:
    """Named machines (`colab-t4`, `p5.48xlarge`, ...) by name, in lower case."""
    found = {name: _notebook(name, table) for name, table in catalog_document()["platforms"].items()}
    found |= {name.lower(): _machine(name, table) for name, table in _document()["machines"].items()}
    return found


def usual_ram(gpu: Gpu, gpus_per_node: int) -> UsualRam:
    """RAM of the smallest known machine with so many of these GPUs; so much for each GPU where none is known."""
    return _usual_ram(gpu.id, gpus_per_node)


@functools.cache
def _usual_ram(gpu: str, gpus_per_node: int) -> UsualRam:
    alike = [machine for machine in load_platforms().values() if machine.gpu_id == gpu]
    sizes = [
        UsualRam(bytes=machine.host_ram_bytes, source=machine.name)
        for machine in alike
        if machine.gpus_per_node == gpus_per_node
    ]
    sizes += [
        UsualRam(bytes=machine.host_ram_bytes * gpus_per_node, source=machine.name)
        for machine in alike
        if machine.per_gpu
    ]
    if sizes:
        return min(sizes, key=lambda size: size.bytes)
    each = _document()["assumed"]["ram_gb_per_gpu"]
    return UsualRam(bytes=each["value"] * 10**9 * gpus_per_node, source=_source(each["source"]))


@functools.cache
def _document() -> dict[str, Any]:
    return facts(Path(__file__).with_name("machines.toml"))


def _source(text: str) -> str:
    sources: dict[str, str] = _document()["sources"]
    return sources.get(text, text)


def _notebook(name: str, table: Mapping[str, Any]) -> Platform:
    return Platform(
        name=name,
        gpu_id=table["gpu"],
        gpus_per_node=table["gpus_per_node"],
        host_ram_bytes=table["host_ram_bytes"]["value"],
        host_ram_source=table["host_ram_bytes"]["source"],
    )


def _machine(name: str, table: Mapping[str, Any]) -> Platform:
    ram = table["ram_gib"] * GIB if "ram_gib" in table else table["ram_gb"] * 10**9
    return Platform(
        name=name,
        gpu_id=table["gpu"],
        gpus_per_node=table["gpus"],
        host_ram_bytes=ram,
        host_ram_source=_source(table["ram_source"]),
        nvme_bytes=table["nvme_gb"] * 10**9 if "nvme_gb" in table else None,
        network_bytes_per_s=table["network_gb_per_s"] * 1e9 if "network_gb_per_s" in table else None,
        network=table.get("network"),
        provider=table["provider"],
        price=_price(table),
        per_gpu=table.get("per_gpu", False),
    )


def _price(table: Mapping[str, Any]) -> Price | None:
    if "usd_per_hour" not in table:
        return None
    return Price(
        usd_per_hour=table["usd_per_hour"],
        provider=table["provider"],
        date=table["price_date"],
        source=_source(table["price_source"]),
    )
