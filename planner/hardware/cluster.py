"""The machines that a plan is for: `8xH100`, `2x8xA100-80GB` (nodes × GPUs), `2xcpu`, `colab-t4`, `auto`."""

import re
from collections.abc import Mapping
from dataclasses import replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.catalog import find_gpu, load_gpus
from gpu_plan.planner.hardware.gpu import Gpu, Price
from gpu_plan.planner.hardware.machines import Platform, load_platforms
from gpu_plan.planner.hardware.meant import check_near_misses
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import format_gib

MAX_GPUS = 1_000_000
ASSUMED_NODE_SIZE = 8
"""PCIe cards are sold one by one; eight of them is the usual server."""
ASSUMED_HOST_LINK = 31e9
"""PCIe 4.0 x16, where a card's own link is not known."""
ASSUMED_SHARED_MEMORY = 10e9
"""Between processes of one machine, which copy through RAM."""
ASSUMED_NODE_NETWORK = 12.5e9
"""One 100 Gb/s port per node, shared by its devices, where no typical node is known."""

_MAX_SPEC = 120
_SPEC = re.compile(r"(?:(?P<first>[0-9]+)\s*x\s*)?(?:(?P<second>[0-9]+)\s*x\s*)?(?P<name>\S.*)", re.IGNORECASE)
_EXAMPLES = "write it like 8xH100, 2x8xA100-80GB (nodes x GPUs) or cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes with equal devices; one process per device."""

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    host_ram_bytes: int | None = None
    """RAM of one node; for the CPU it is what the processes share."""
    platform: str | None = None
    nvme_bytes: int | None = None
    """Local disks of one node, where known."""
    price: Price | None = None
    """Rent of one device of this very machine, where it is known by name and somebody printed one."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise InputError(f"a cluster needs at least one node and one GPU, not {self.nodes}x{self.gpus_per_node}")
        if self.world_size > MAX_GPUS:
            raise InputError(f"{self.world_size:,} GPUs are more than the {MAX_GPUS:,} that can be planned for")
        if self.gpu.usable_bytes is None and self.host_ram_bytes is None:
            raise InputError(f"{self.gpu.short} has no memory of its own: the machine's RAM is needed")

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def prices(self) -> tuple[Price, ...]:
        """What one of its devices is rented for, cheapest first: its own machine's price where it is known by name,
        for which what others ask for such a device says nothing."""
        if self.price is not None:
            return (self.price,)
        return () if self.platform else tuple(sorted(self.gpu.prices, key=lambda price: price.usd_per_hour))

    @property
    def spec(self) -> str:
        """The text that `parse_cluster` reads back as this cluster."""
        if self.platform:
            return self.platform if self.nodes == 1 else f"{self.nodes}x{self.platform}"
        if self.nodes == 1 and self.gpus_per_node <= node_size(self.gpu):
            plain_cpu = self.gpu.is_cpu and self.gpus_per_node == 1
            return self.gpu.short if plain_cpu else f"{self.gpus_per_node}x{self.gpu.short}"
        return f"{self.nodes}x{self.gpus_per_node}x{self.gpu.short}"

    @property
    def capacity_bytes(self) -> int:
        """Memory that one process can use: the device's, or its share of the RAM on a CPU."""
        if self.gpu.usable_bytes is not None:
            return self.gpu.usable_bytes
        assert self.host_ram_bytes is not None  # __post_init__ holds it
        return self.host_ram_bytes // self.gpus_per_node

    @property
    def capacity_basis(self) -> str:
        return self.gpu.usable_basis

    @property
    def intra_node_bytes_per_s(self) -> float:
        """One direction, per device, inside a node; the host link's where no other joins all devices."""
        return self._intra()[0]

    @property
    def intra_node_basis(self) -> str:
        return self._intra()[1]

    @property
    def intra_node_link(self) -> str:
        """What joins the devices of a node, in words."""
        return self._intra()[2]

    @property
    def peer_access(self) -> bool:
        """Whether the devices of a node reach each other's memory."""
        return self.gpu.link is None or self.gpu.link.peer

    def _intra(self) -> tuple[float, str, str]:
        if self.gpu.is_cpu:
            return ASSUMED_SHARED_MEMORY, "assumed", "shared memory (assumed)"
        for link in (self.gpu.link, self.gpu.host_link):
            joins_all = link is not None and (link.span is None or link.span >= self.gpus_per_node)
            if link is not None and joins_all and link.bytes_per_s is not None:
                return link.bytes_per_s, link.basis, link.type
        return ASSUMED_HOST_LINK, "assumed", "PCIe 4.0 x16 (assumed)"

    @property
    def joined_gpus(self) -> int:
        """Devices that one switch joins: a node's, or those of several nodes of a rack (NVL72)."""
        link = self.gpu.link
        span = 0 if link is None or link.span is None else link.span // self.gpus_per_node
        return self.gpus_per_node * max(1, span)

    @property
    def inter_node_bytes_per_s(self) -> float:
        """One direction, per device, between nodes."""
        if self.gpu.network_bytes_per_s is not None:
            return self.gpu.network_bytes_per_s
        return ASSUMED_NODE_NETWORK / self.gpus_per_node

    @property
    def inter_node_basis(self) -> str:
        if self.gpu.network_bytes_per_s is None:
            return "assumed"
        fact = self.gpu.facts.get("network_gb_per_s")
        return "given" if fact is None or fact.kind == "user" else fact.basis

    @property
    def host_link_bytes_per_s(self) -> float:
        """One direction, per device, between device and host RAM (what offloading uses)."""
        link = self.gpu.host_link
        return ASSUMED_HOST_LINK if link is None or link.bytes_per_s is None else link.bytes_per_s

    @property
    def host_link_basis(self) -> str:
        link = self.gpu.host_link
        return "assumed" if link is None or link.bytes_per_s is None else link.basis


def node_size(gpu: Gpu) -> int:
    """Devices that one node holds; processes of a CPU are not limited."""
    return MAX_GPUS if gpu.is_cpu else gpu.node_size or ASSUMED_NODE_SIZE


def parse_cluster(text: str, extra_gpus: Mapping[str, object] | None = None, ram_bytes: int | None = None) -> Cluster:
    """The cluster that `text` names.

    A count above the node's size means full nodes (16xH100 is 2x8xH100). `extra_gpus` are the raw tables of
    `[tool.plan.gpus]`. `ram_bytes` is the RAM for `cpu`, read from this machine when None.
    Raises InputError, one line, for everything else.
    """
    shown = repr(text[:_MAX_SPEC])
    spec = text.strip()
    if len(text) > _MAX_SPEC or not spec or not text.isascii():
        raise InputError(f"--gpus {shown} is not a cluster: {_EXAMPLES}")
    platform = load_platforms().get(spec.lower())
    if platform is not None:
        return _platform_cluster(platform)
    first, second, name = _split(spec, shown)
    platform = load_platforms().get(name.lower())
    if platform is not None and second is None:
        return _platform_cluster(platform, first or 1)
    gpu = find_gpu(name, extra_gpus, load_platforms())
    if gpu.is_cpu and ram_bytes is None:
        from gpu_plan.planner.hardware.ram import machine_ram_bytes

        ram_bytes = machine_ram_bytes()
    nodes, per_node = _shape(first, second, gpu, shown)
    return Cluster(gpu=gpu, nodes=nodes, gpus_per_node=per_node, host_ram_bytes=ram_bytes if gpu.is_cpu else None)


def _platform_cluster(platform: Platform, count: int = 1) -> Cluster:
    """So many of the machine; of one that is sold by the GPU, so many GPUs in one node."""
    gpu = load_gpus()[platform.gpu_id]
    if platform.network_bytes_per_s is not None:
        each_gets = platform.network_bytes_per_s / platform.gpus_per_node
        gpu = replace(gpu, network_bytes_per_s=each_gets, network=platform.network)
    nodes, each = (1, count) if platform.per_gpu and count <= node_size(gpu) else (count, 1)
    price = platform.price
    return Cluster(
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=platform.gpus_per_node * each,
        host_ram_bytes=platform.host_ram_bytes * each,
        platform=platform.name if each == 1 else f"{each}x{platform.name}",
        nvme_bytes=platform.nvme_bytes,
        price=None if price is None else replace(price, usd_per_hour=price.usd_per_hour / platform.gpus_per_node),
    )


def _split(spec: str, shown: str) -> tuple[int | None, int | None, str]:
    check_near_misses(spec, shown, load_platforms())
    if re.fullmatch(r"(?:[0-9]+\s*x\s*)+", spec, re.IGNORECASE):
        raise InputError(f"--gpus {shown} names no GPU after the count: {_EXAMPLES}")
    if re.match(r"x\s*[0-9]", spec, re.IGNORECASE):
        raise InputError(f"--gpus {shown} has no count before the x: {_EXAMPLES}")
    if re.match(r"-\s*[0-9]", spec):
        raise InputError(f"--gpus {shown} has a negative count: {_EXAMPLES}")
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError(f"--gpus {shown} is not a cluster: {_EXAMPLES}")
    counts = [_count(match[group], shown) for group in ("first", "second")]
    return counts[0], counts[1], match["name"]


def _count(digits: str | None, shown: str) -> int | None:
    if digits is None:
        return None
    significant = digits.lstrip("0")
    if not significant:
        raise InputError(f"--gpus {shown} asks for zero GPUs: {_EXAMPLES}")
    if len(significant) > len(str(MAX_GPUS)) or int(significant) > MAX_GPUS:
        raise InputError(f"--gpus {shown} is more than the {MAX_GPUS:,} GPUs that can be planned for")
    return int(significant)


def _shape(first: int | None, second: int | None, gpu: Gpu, shown: str) -> tuple[int, int]:
    """Nodes and devices per node."""
    size = node_size(gpu)
    if first is not None and second is not None:
        if gpu.node_size is not None and second > size:
            raise InputError(f"--gpus {shown}: a {gpu.short} node holds {size} GPUs, not {second}")
        return first, second
    count = first or 1
    if count <= size:
        return 1, count
    nodes, rest = divmod(count, size)
    if rest:
        raise InputError(
            f"--gpus {shown}: {count} GPUs do not fill nodes of {size}; take {nodes * size} or "
            f"{(nodes + 1) * size}, or write nodes x GPUs such as 2x{size}x{gpu.short}"
        )
    return nodes, size


def cluster_document(cluster: Cluster) -> dict[str, object]:
    """The `cluster` section of the machine interface: plain JSON values, bytes as integers."""
    gpu = cluster.gpu
    return {
        "spec": cluster.spec,
        "gpu": gpu.short,
        "gpu_id": gpu.id,
        "gpu_name": gpu.name,
        "gpus": cluster.world_size,
        "nodes": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "platform": cluster.platform,
        "marketed_bytes": gpu.marketed_bytes,
        "usable_bytes": cluster.capacity_bytes,
        "usable_basis": cluster.capacity_basis,
        "usable_source": gpu.source_of("usable_bytes") or gpu.source_of("marketed_gb") or gpu.source_of("memory"),
        "host_ram_bytes_per_node": cluster.host_ram_bytes,
        "nvme_bytes_per_node": cluster.nvme_bytes,
        "compute_capability": None if gpu.compute_capability is None else "{}.{}".format(*gpu.compute_capability),
        "memory_bandwidth_bytes_per_s": _whole(gpu.bandwidth_bytes_per_s),
        "peak_flops": {dtype: int(peak) for dtype, peak in gpu.peak_flops.items()},
        "intra_node": _rate(cluster.intra_node_bytes_per_s, cluster.intra_node_basis, link=cluster.intra_node_link),
        "inter_node": _rate(cluster.inter_node_bytes_per_s, cluster.inter_node_basis),
        "host_link": _rate(cluster.host_link_bytes_per_s, cluster.host_link_basis),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _rate(bytes_per_s: float, basis: str, **more: str) -> dict[str, object]:
    return {"bytes_per_s": int(bytes_per_s), "basis": basis, **more}


def describe(cluster: Cluster) -> str:
    """One line for people: `2x8xH100: 16 GPUs on 2 nodes, 79.1 GiB usable each (torch)`."""
    noun = "process" if cluster.gpu.is_cpu else "GPU"
    plural = "" if cluster.world_size == 1 else "es" if cluster.gpu.is_cpu else "s"
    where = "" if cluster.nodes == 1 else f" on {cluster.nodes} nodes"
    each = f"{format_gib(cluster.capacity_bytes)} GiB usable each ({cluster.capacity_basis})"
    return f"{cluster.spec}: {cluster.world_size} {noun}{plural}{where}, {each}"
