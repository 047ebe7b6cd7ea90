"""GPUs that the user describes under `[tool.plan.gpus.NAME]`.

[tool.plan.gpus.my-card]
memory = "46 GiB"               # usable, as torch.cuda.mem_get_info counts it; required
bandwidth_gb_per_s = 900        # and any of the keys of _NUMBERS
bfloat16_tflops = 180
compute_capability = "8.9"
host_link_gb_per_s = 31
network = "roce"                # what joins nodes, of NETWORKS; "infiniband" is what is taken where nothing is said
"""

import math
import re
from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.gpu import Fact, Gpu, Interval, Link
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.units import MIB, parse_bytes

_DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")
_NUMBERS = (
    "bandwidth_gb_per_s",
    "link_gb_per_s",
    "host_link_gb_per_s",
    "network_gb_per_s",
    "tdp_w",
    *(f"{dtype}_tflops" for dtype in _DTYPES),
)
_INTEGERS = ("sm_count", "node_size")
NETWORKS = ("efa", "ethernet", "infiniband", "infiniband-sharp", "omni-path", "rail-only", "roce")
"""What may join nodes; whose rates differ stands in planner/speed/collectives.toml. infiniband-sharp: its switches add
up all-reduces; ethernet: TCP without RDMA; rail-only: a switch for each rail and none above them."""
_KEYS = ("memory", "context", "compute_capability", "vendor", "network", *_NUMBERS, *_INTEGERS)
_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")
_MAX_MEMORY = 2**50
_ASSUMED_CONTEXT = Interval(low=105 * MIB, expected=496 * MIB, high=866 * MIB, basis="assumed")
"""The span of the shipped NVIDIA figures, which is all that can be said of an unknown card."""


class _Table:
    """Typed access to one raw table; every complaint names the key in full."""

    def __init__(self, name: str, raw: object) -> None:
        self.where = f"[tool.plan.gpus.{name[:40]}]"
        if not isinstance(raw, Mapping):
            raise InputError(f"{self.where} must be a table, such as {{ memory = '46 GiB' }}")
        for key in raw:
            if key not in _KEYS:
                raise InputError(
                    f"{self.where} has an unknown key {str(key)[:40]!r}.{did_you_mean(str(key)[:40], _KEYS)}"
                )
        self.raw = raw

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is not None and not isinstance(value, str):
            raise InputError(f"{self.where} {key} must be text")
        return value

    def number(self, key: str, factor: float = 1.0) -> float | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            raise InputError(f"{self.where} {key} must be a positive number")
        return value * factor

    def integer(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and not float(value).is_integer():
            raise InputError(f"{self.where} {key} must be a whole number")
        return None if value is None else int(value)

    def size(self, key: str) -> int | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = parse_bytes(value)
            except InputError as error:
                raise InputError(f"{self.where} {key}: {error}") from None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MAX_MEMORY:
            raise InputError(f"{self.where} {key} must be a size below 1 PiB, such as '46 GiB'")
        return value

    def capability(self) -> tuple[int, int] | None:
        text = self.text("compute_capability")
        if text is None:
            return None
        match = _CAPABILITY.fullmatch(text)
        if match is None:
            raise InputError(f"{self.where} compute_capability must be text such as '8.9'")
        return int(match.group(1)), int(match.group(2))

    def network(self) -> str | None:
        """None for InfiniBand, whose rates hold for what is not said."""
        told = self.text("network")
        if told is not None and told not in NETWORKS:
            raise InputError(f"{self.where} network must be one of {', '.join(NETWORKS)}, not {told[:40]!r}")
        return None if told == "infiniband" else told


def _link(table: _Table, key: str, kind: str) -> Link | None:
    rate = table.number(key, 1e9)
    return None if rate is None else Link(type=kind, bytes_per_s=rate, basis="given")


def parse_user_gpu(name: str, raw: object) -> Gpu:
    """The GPU that one raw `[tool.plan.gpus.NAME]` table describes; InputError names the wrong key."""
    table = _Table(name, raw)
    memory = table.size("memory")
    if memory is None:
        raise InputError(f"{table.where} needs memory, the usable size such as '46 GiB'")
    context = table.size("context")
    if context is not None and context >= memory:
        raise InputError(f"{table.where} context must be smaller than memory")
    peaks = {dtype: table.number(f"{dtype}_tflops", 1e12) for dtype in _DTYPES}
    facts = {key: Fact(value=value, source=table.where, kind="user") for key, value in table.raw.items()}
    return Gpu(
        id=name,
        name=name,
        short=name,
        vendor=table.text("vendor") or "unknown",
        architecture="unknown",
        form_factor="unknown",
        aliases=(name,),
        marketed_bytes=None,
        usable_bytes=memory,
        usable_basis="user",
        compute_capability=table.capability(),
        sm_count=table.integer("sm_count"),
        bandwidth_bytes_per_s=table.number("bandwidth_gb_per_s", 1e9),
        peak_flops={dtype: peak for dtype, peak in peaks.items() if peak is not None and math.isfinite(peak)},
        link=_link(table, "link_gb_per_s", "given"),
        host_link=_link(table, "host_link_gb_per_s", "given"),
        node_size=table.integer("node_size"),
        network_bytes_per_s=table.number("network_gb_per_s", 1e9),
        network=table.network(),
        tdp_watts=table.number("tdp_w"),
        context=_ASSUMED_CONTEXT
        if context is None
        else Interval(low=context, expected=context, high=context, basis="given"),
        facts=facts,
    )
