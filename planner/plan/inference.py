"""What is said about one way to run inference: where the modules stand, and the figures of load, prefill and decode.

These stand in optional fields of a plan's candidate; a plan of a training job has none of them.
"""

from collections.abc import Mapping
from dataclasses import field

from gpu_plan.planner.plain.values import dataclass

DEVICE_WORDS = ("cpu", "disk")
"""Places that are no GPU. A GPU is `cuda:0`, `cuda:1`, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlacement:
    """What one place holds; bytes."""

    device: str
    """`cuda:0`, `cpu` or `disk`."""
    weight_bytes: int
    """Parameters and buffers that stand there."""
    kv_cache_bytes: int = 0
    """Of the layers that run there, at full context."""
    peak_bytes: int | None = None
    """Peak allocated of that device; None where nothing runs there."""
    capacity_bytes: int | None = None

    def __post_init__(self) -> None:
        if not is_device(self.device):
            raise ValueError(f"device {self.device!r} is not one of cuda:N, cpu, disk")
        if min(self.weight_bytes, self.kv_cache_bytes, self.peak_bytes or 0) < 0:
            raise ValueError(f"a negative number of bytes on {self.device}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which module stands where.

    `device_map` is what `accelerate.dispatch_model` and `from_pretrained(device_map=...)` take: module names that
    together cover every parameter and buffer once, each with `cuda:N`, `cpu` or `disk`. '' is the whole model. Under
    tensor parallelism there is none; under pipeline parallelism `cuda:N` is the N-th stage.
    """

    device_map: Mapping[str, str]
    devices: tuple[DevicePlacement, ...]
    """One entry for every place of the map, GPUs first, then `cpu`, then `disk`."""
    main_device: str = "cuda:0"
    """Where inputs go, and where modules run whose weights are on `cpu` or `disk`."""
    boundaries: int = 0
    """How often the hidden state changes its device in one forward pass."""
    moved_bytes_per_step: int = 0
    """Weights copied to the main device in each forward pass."""
    optimal: bool = False
    """Whether it was proved that nothing better exists."""

    def __post_init__(self) -> None:
        held = {entry.device for entry in self.devices}
        for name, device in self.device_map.items():
            if not is_device(device):
                raise ValueError(f"device_map[{name!r}] is {device!r}, none of cuda:N, cpu, disk")
            if device not in held:
                raise ValueError(f"device_map[{name!r}] is {device!r}, which is not among the devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFigures:
    """One generation at full context; bytes and seconds of the worst device."""

    prompt_tokens: int
    """Tokens of the prompt: context less new tokens."""
    weight_bytes: int
    """Parameters and buffers on the worst device."""
    kv_cache_bytes: int
    """The cache at full context on the worst device."""
    load_peak_bytes: int
    """Most allocated while the weights are loaded."""
    prefill_peak_bytes: int
    decode_peak_bytes: int
    cpu_bytes: int = 0
    """RAM that holds offloaded weights."""
    disk_bytes: int = 0
    """Disk that holds offloaded weights."""
    max_context: int | None = None
    """Longest context that fits with this batch; None where it was not searched."""
    max_batch: int | None = None
    """Largest batch of a replica that fits with this context."""
    prefill_seconds: float | None = None
    """Of the prompt of one batch."""
    decode_seconds: float | None = None
    """Of one step at full context."""
    prefill_tokens_per_second: float | None = None
    """Prompt tokens, all replicas together."""
    decode_tokens_per_second: float | None = None
    """New tokens, all replicas together, at full context."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """What bounds `max_context` and `max_batch`: `memory`, `positions`, or `searched` up to a bound."""

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "weight_bytes", "kv_cache_bytes", "load_peak_bytes", "cpu_bytes", "disk_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, below 0")


def is_device(word: str) -> bool:
    """Whether `word` names a place: `cuda:N`, `cpu` or `disk`."""
    kind, colon, number = word.partition(":")
    return word in DEVICE_WORDS or (kind == "cuda" and bool(colon) and number.isascii() and number.isdigit())
