"""What is known about one accelerator: values, and for each value where it comes from."""

from collections.abc import Mapping
from typing import Literal

from gpu_plan.planner.plain.values import dataclass

UsableBasis = Literal["torch", "nvidia-smi", "vendor tool", "marketed", "user", "this machine"]
"""Who counted the usable bytes; only `torch` is what `torch.cuda.mem_get_info` would call total."""

MEASURED_KINDS = frozenset({"measured_print", "sibling_print"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value as its source gives it."""

    value: object
    source: str
    """A reference a reader can follow, spelled out."""
    kind: str
    """How the source knows: `vendor_doc`, `measured_print`, `assumed`, ... (see gpus.toml)."""
    note: str = ""

    @property
    def basis(self) -> str:
        """`measured`, `assumed`, or `source` for everything read in a document."""
        if self.kind in MEASURED_KINDS:
            return "measured"
        return "assumed" if self.kind == "assumed" else "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bytes that are known only within bounds: low <= expected <= high."""

    low: int
    expected: int
    high: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection of one device; None where no rate was found."""

    type: str
    bytes_per_s: float | None
    """One direction, per device."""
    span: int | None = None
    """How many devices the link joins; None for all of a node."""
    peer: bool = True
    """Whether a device reads and writes the memory of another over it. The stock driver of GeForce cards refuses that
    over PCIe: what they send each other passes through RAM."""
    basis: str = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """On-demand rent of one device."""

    usd_per_hour: float
    provider: str
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of accelerator. Everything optional is None (or absent) when nobody published it."""

    id: str
    name: str
    short: str
    """The name that `--gpus` reads and that reports show: `H100`, `A100-80GB`."""
    vendor: str
    architecture: str
    form_factor: str
    aliases: tuple[str, ...]
    marketed_bytes: int | None
    usable_bytes: int | None
    """What `usable_basis` counted; None only for the CPU, whose memory belongs to the machine."""
    usable_basis: UsableBasis
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    """Streaming multiprocessors, or what the vendor calls compute units."""
    bandwidth_bytes_per_s: float | None = None
    peak_flops: Mapping[str, float]
    """Dense peak per second by dtype: float32, tf32, float16, bfloat16, float8."""
    link: Link | None = None
    host_link: Link | None = None
    node_size: int | None = None
    network_bytes_per_s: float | None = None
    """Between nodes, one direction, per device of a typical node."""
    network: str | None = None
    """What joins its nodes where NCCL fills that otherwise than InfiniBand: of user_gpus.NETWORKS, or `tcpx`."""
    tdp_watts: float | None = None
    context: Interval
    """Device bytes of the driver's context and loaded kernels, per process."""
    context_at_init: int | None = None
    prices: tuple[Price, ...] = ()
    facts: Mapping[str, Fact]
    """Every value by its name in gpus.toml, such as `usable_bytes` or `peak_tflops.bfloat16`."""

    @property
    def is_cpu(self) -> bool:
        return self.vendor == "cpu"

    @property
    def supports_bf16(self) -> bool:
        """Whether bfloat16 runs natively: Ampere and later, or a published bfloat16 peak."""
        if self.is_cpu or "bfloat16" in self.peak_flops:
            return True
        return self.compute_capability is not None and self.compute_capability >= (8, 0)

    @property
    def supports_fp8(self) -> bool:
        """Whether float8 matrix products run natively: Ada and later, or a published float8 peak."""
        if "float8" in self.peak_flops:
            return True
        return self.compute_capability is not None and self.compute_capability >= (8, 9)

    def source_of(self, fact: str) -> str:
        """Where the value called `fact` comes from, or an empty string when there is no such value."""
        found = self.facts.get(fact)
        return found.source if found else ""
