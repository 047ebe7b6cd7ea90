"""A device map with what it costs: the answer of `solve` and of `evaluate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

from gpu_plan.planner.search.device_map.problem import DeviceName
from gpu_plan.planner.units import ceil_div

SHARE_STEPS = 1000
"""The fullest device is found to a thousandth of its free bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProof:
    """How far one goal is proved: no map that is as good in the goals before has a value below `bound`."""

    goal: str
    """`offloaded bytes` and `disk bytes` (rounded up to the problem's step), `boundaries` or `fullest device`."""
    value: float
    bound: float
    method: str
    """`nothing lower exists` (a combinatorial bound), `integer program`, `time limit` or `enumeration`."""

    @property
    def optimal(self) -> bool:
        return self.value <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a map is judged by, in this order; smaller is better."""

    offloaded_bytes: int
    """Weights that are not on a GPU (without any GPU: not in host memory): copied to where they run for every token,
    or, when no GPU holds anything, run by the CPU."""
    disk_bytes: int
    """Those of them that come from disk."""
    boundaries: int
    """Consecutive units (in execution order) that run on different devices."""
    fullest: float
    """Share of its free bytes that the fullest executing device needs, at its peak."""

    step_bytes: int = 1
    """Bytes are compared in such steps, rounded up."""
    idle_gpus: bool = False
    """The CPU runs everything although there are GPUs: counts one step more than any map that uses one."""

    @property
    def key(self) -> tuple[int, int, int, float]:
        """For comparison; `fullest` rounded up to a thousandth, as fine as it is searched."""
        share = self.fullest * SHARE_STEPS
        rounded = ceil(share - 1e-6) / SHARE_STEPS if isfinite(share) else share
        offloaded = ceil_div(self.offloaded_bytes, self.step_bytes) + self.idle_gpus
        return (offloaded, ceil_div(self.disk_bytes, self.step_bytes), self.boundaries, rounded)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Bytes on one device at full context."""

    name: DeviceName
    weight_bytes: int
    """Resident weights, a tied tensor once."""
    buffer_bytes: int
    """Of the units that run here."""
    state_bytes: int
    """Key/value cache and recurrent state of the units that run here."""
    headroom_bytes: int
    """Free for the largest offloaded unit and workspace, at its turn."""
    free_bytes: int | None

    @property
    def kept_bytes(self) -> int:
        """What the units that run here keep between steps."""
        return self.buffer_bytes + self.state_bytes

    @property
    def peak_bytes(self) -> int:
        return self.weight_bytes + self.kept_bytes + self.headroom_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A valid or invalid map and its figures."""

    device_map: Mapping[str, DeviceName]
    """Unit name to device; the main GPU is named first (older accelerate takes the first GPU it meets)."""
    execution_order: tuple[str, ...]
    """Unit names as they run."""
    main_device: DeviceName
    """Where offloaded units run."""
    devices: tuple[DeviceUse, ...]
    cost: Cost
    streamed_bytes: int
    """Weights copied to the device that runs them, per forward pass."""
    moved_bytes: int
    """Bytes copied over all links per token: offloaded weights (from disk: read, then copied) and activations that
    cross boundaries."""
    seconds_per_token: float | None
    """None where a rate that is needed is not known."""
    proof: tuple[StageProof, ...] = ()
    """Empty for a map that was evaluated, not searched."""
    violations: tuple[str, ...] = ()
    """One line each: a device over its free bytes, a tied tensor in two places."""

    @property
    def valid(self) -> bool:
        return not self.violations

    @property
    def optimal(self) -> bool:
        """Whether every goal is proved."""
        return bool(self.proof) and all(stage.optimal for stage in self.proof)

    def to_json(self) -> dict[str, Any]:
        """Plain data for reports."""
        return {
            "device_map": dict(self.device_map),
            "main_device": self.main_device,
            "devices": [
                {
                    "device": use.name,
                    "weight_bytes": use.weight_bytes,
                    "buffer_bytes": use.buffer_bytes,
                    "state_bytes": use.state_bytes,
                    "headroom_bytes": use.headroom_bytes,
                    "peak_bytes": use.peak_bytes,
                    "free_bytes": use.free_bytes,
                }
                for use in self.devices
            ],
            "offloaded_bytes": self.cost.offloaded_bytes,
            "disk_bytes": self.cost.disk_bytes,
            "step_bytes": self.cost.step_bytes,
            "boundaries": self.cost.boundaries,
            "fullest": self.cost.fullest,
            "streamed_bytes_per_token": self.streamed_bytes,
            "moved_bytes_per_token": self.moved_bytes,
            "seconds_per_token": self.seconds_per_token,
            "optimal": self.optimal,
            "proof": [
                {"goal": stage.goal, "value": stage.value, "bound": stage.bound, "method": stage.method}
                for stage in self.proof
            ],
            "violations": list(self.violations),
        }
