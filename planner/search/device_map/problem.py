"""What is to be placed and where it may go: values only.

Mirrors how accelerate runs a device map (accelerate, `big_modeling.py: dispatch_model`, `hooks.py:
AlignDevicesHook`): a module placed on a GPU is resident and runs there; a module placed on `cpu` or `disk` runs
on the *main* GPU (the lowest that the map names), its weights are copied there for each forward and dropped
after it, and what is kept between steps (key/value cache, buffers) lives where it runs. Without any GPU the CPU
is the main device and only `disk` streams.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.errors import InputError

DeviceKind = Literal["gpu", "cpu", "disk"]
DeviceName = int | str
"""As accelerate names devices: the index of a GPU, `cpu` or `disk`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """One tensor of a unit that other units hold too (an embedding used as head)."""

    group: str
    """Equal in all units that hold the tensor: by convention the tensor's first name."""
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is placed as a whole: a no-split block, a leaf module, or one tensor of a module that is split."""

    name: str
    """Qualified name, as a device map spells it, e.g. `model.layers.0`."""
    weight_bytes: int
    """Parameters, tied ones included: stored where the unit is placed, streamed when that is not where it runs."""
    buffer_bytes: int = 0
    """Buffers: they stay where the unit runs (accelerate's default, `offload_buffers=False`)."""
    state_bytes: int = 0
    """Key/value cache and recurrent state at full context: lives where the unit runs."""
    workspace_bytes: int = 0
    """Temporary bytes while the unit runs; a device needs the largest of those of its units, once."""
    stream_bytes: int | None = None
    """Weights that must be on the executing device at once when the unit is offloaded; None: all of them, as
    accelerate's planner reserves. Its hooks need only the largest module with tensors of its own."""
    read_bytes: int | None = None
    """Weights and state read per token by the executing device; None: `weight_bytes` and `state_bytes`. Less for an
    embedding (one row) and for a mixture of experts (the chosen ones); streaming always moves all."""
    output_bytes: int = 0
    """What the next unit receives per token: crosses between devices at a boundary."""
    ties: tuple[Tie, ...] = ()

    @property
    def headroom_bytes(self) -> int:
        """Bytes free on the executing device while the unit, offloaded, runs."""
        return (self.weight_bytes if self.stream_bytes is None else self.stream_bytes) + self.workspace_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes read from the executing device's memory per token."""
        return self.weight_bytes + self.state_bytes if self.read_bytes is None else self.read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A place for units, with what is free there."""

    name: DeviceName
    kind: DeviceKind
    free_bytes: int | None
    """None: without limit (a disk whose room is not known)."""
    memory_bytes_per_s: float | None = None
    """Rate at which it reads its own memory while computing."""
    link_bytes_per_s: float | None = None
    """GPU: copying from host memory, one direction. Disk: reading a file. Unused for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Units in execution order; devices with GPUs by index, then `cpu`, then `disk`."""

    units: tuple[Unit, ...]
    devices: tuple[Device, ...]
    peer_bytes_per_s: float | None = None
    """Between two GPUs, one direction; None: through host memory, at both links' rates."""
    boundary_seconds: float = 0.0
    """Fixed time of one crossing between devices."""
    granule_bytes: int | None = None
    """Offloaded and disk bytes count in such steps, rounded up; None: a thousandth of the weights, below which
    bytes are not worth a boundary more (a norm's few kilobytes would scatter a model over its devices)."""

    def __post_init__(self) -> None:
        check_problem(self)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """By index."""
        return tuple(sorted((d for d in self.devices if d.kind == "gpu"), key=lambda device: str(device.name).zfill(6)))

    def device(self, name: DeviceName) -> Device | None:
        """The device called `name`, or None."""
        return next((device for device in self.devices if device.name == name), None)

    @property
    def step_bytes(self) -> int:
        """The step in which bytes are compared."""
        return max(1, self.weight_bytes // 1000) if self.granule_bytes is None else self.granule_bytes

    @property
    def weight_bytes(self) -> int:
        """Weights of the model, each tied tensor once."""
        return stored_bytes(self.units)


def stored_bytes(units: Iterable[Unit]) -> int:
    """Weights of units that share one device: a tied tensor is stored there once."""
    total, seen = 0, set()
    for unit in units:
        total += unit.weight_bytes
        for tie in unit.ties:
            if tie.group in seen:
                total -= tie.num_bytes
            seen.add(tie.group)
    return total


def check_problem(problem: Problem) -> None:
    """Raises InputError, in one line, for sizes and names that make no sense."""
    if not problem.units:
        raise InputError("device map: the model has no modules to place")
    if not problem.devices:
        raise InputError("device map: no device to place modules on")
    _check_names(problem)
    if problem.granule_bytes is not None and problem.granule_bytes < 1:
        raise InputError(f"device map: bytes cannot be counted in steps of {problem.granule_bytes}")
    for unit in problem.units:
        for field in ("weight_bytes", "buffer_bytes", "state_bytes", "workspace_bytes", "output_bytes"):
            _not_negative(getattr(unit, field), f"{field} of {unit.name}")
        for field in ("stream_bytes", "read_bytes"):
            _not_negative(getattr(unit, field) or 0, f"{field} of {unit.name}")
        if sum(tie.num_bytes for tie in unit.ties) > unit.weight_bytes:
            raise InputError(f"device map: {unit.name} has {unit.weight_bytes} bytes, less than its tied tensors")
    for device in problem.devices:
        _not_negative(device.free_bytes or 0, f"free bytes of device {device.name}")
        for rate in (device.memory_bytes_per_s, device.link_bytes_per_s):
            if rate is not None and not rate > 0:
                raise InputError(f"device map: a rate of device {device.name} is {rate}, not a positive number")


def _not_negative(value: int, what: str) -> None:
    if value < 0:
        raise InputError(f"device map: {what} is {value}; a size cannot be negative")


def _check_names(problem: Problem) -> None:
    names: set[str] = set()
    for unit in problem.units:
        if unit.name in names:
            raise InputError(f"device map: module {unit.name!r} is named twice")
        names.add(unit.name)
    for name in names:
        parent = name
        while "." in parent:
            parent = parent.rpartition(".")[0]
            if parent in names:
                raise InputError(f"device map: {name!r} lies inside {parent!r}, which is placed as a whole")
    seen: set[DeviceName] = set()
    for device in problem.devices:
        if device.name in seen:
            raise InputError(f"device map: device {device.name} is named twice")
        seen.add(device.name)
    for kind in ("cpu", "disk"):
        if sum(device.kind == kind for device in problem.devices) > 1:
            raise InputError(f"device map: more than one {kind} device")
    tied: dict[str, int] = {}
    for unit in problem.units:
        for tie in unit.ties:
            if tied.setdefault(tie.group, tie.num_bytes) != tie.num_bytes:
                raise InputError(f"device map: the tied tensor {tie.group} has two sizes")
