"""The interface between whoever describes a step and whoever says how long it takes. Frozen.

Strategies describe (`StepWork`, `Collective`, `OptimizerWork`), a `SpeedModel` answers (`StepTime`). A model that
rests on measurements takes the place of the analytic one behind the same three names.
"""

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, Literal, Protocol

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import FloatArray, StepTrace

Kernel = Literal["flash", "cudnn", "flash1", "flash3"]
"""FlashAttention-2, cuDNN's, the first FlashAttention, FlashAttention-3."""
CollectiveKind = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
    "host_to_device",
    "device_to_host",
    "disk_to_host",
    "host_to_disk",
]
Phase = Literal["forward", "backward", "step"]
Layers = Literal["torch", "megatron-core", "megatron-deepspeed"]
"""Whose Python issues a step's operators, where it takes other time than torch's own modules."""
Per = Literal["micro_step", "step"]

DISK_KINDS: frozenset[str] = frozenset({"disk_to_host", "host_to_disk"})
HOST_KINDS: frozenset[str] = frozenset({"host_to_device", "device_to_host"}) | DISK_KINDS
"""Kinds in which no other rank takes part."""


Axis = Literal["data", "replicas", "tensor", "expert", "context", "host"]
"""Why ranks send: what a degree has them share, or what is offloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Equal transfers that one rank takes part in."""

    kind: CollectiveKind
    bytes: int
    """Per call, of the whole tensor: what an all-reduce reduces, what an all-gather puts out, what a
    reduce-scatter takes in, what a broadcast sends, what a rank of an all-to-all sends to all, itself among them; for
    the host kinds what this rank copies."""
    count: int = 1
    """Calls per `per`."""
    phase: Phase
    """When they are issued. `backward` holds the recomputation too."""
    per: Per
    """`micro_step`: in each of the accumulation steps. `step`: once per optimizer step; in `forward` and
    `backward` that is the last micro step (DDP and ZeRO reduce there). In phase `step` both mean once."""
    overlap: bool
    """Whether they run beside the computation of their phase; otherwise the computation waits."""
    ranks: int | None = None
    """Ranks taking part; None for all of the cluster."""
    across_nodes: bool = False
    """One rank of each node takes part (replicas of HSDP), instead of filling nodes one after the other."""
    stride: int = 1
    """How far apart they are numbered: ranks between them, which compute one copy together, are in groups beside."""
    issued: tuple[int, int] = (0, 0)
    """Operators that hooks issue around each call, those that fill memory or send it, and all, views among them: they
    take the host's time, not the device's."""

    axis: Axis = "data"
    """The degree whose ranks take part."""

    beside: tuple[int, float] = (0, 0.0)
    """Of calls that are waited for: a phase of the trace, and how many of its fused attention operators, each of the
    mean length, run between a call and the wait for it: a ring's blocks."""

    products: float = 0.0
    """Of calls that are waited for: FLOPs of the products that are computed between a call and the wait for it."""

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.count < 0 or (self.ranks is not None and self.ranks < 1):
            raise InputError(f"a {self.kind} of {self.bytes} bytes, {self.count} times, is invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerWork:
    """What one rank's optimizer step touches (clipping and zero_grad included), once per optimizer step."""

    parameter_bytes_read_written: int
    """Bytes read plus bytes written: weights, masters, gradients, states."""
    on_host: bool = False
    """Whether the step runs on the CPU (offload). Its PCIe copies are `Collective`s of the host kinds."""
    elements: int = 0
    """Parameter elements that are stepped."""

    def __post_init__(self) -> None:
        if self.parameter_bytes_read_written < 0 or self.elements < 0:
            raise InputError("an optimizer step cannot touch a negative number of bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Everything one rank does in one optimizer step. The worst rank is meant where ranks differ."""

    trace: StepTrace
    """One forward and backward of this rank's part of the model, recomputation included where it happens."""
    micro_batch: int
    accumulation_steps: int = 1
    compute_dtype: str
    """torch dtype in which matrix products run, or `tf32`."""
    collectives: tuple[Collective, ...] = ()
    optimizer: OptimizerWork
    data_parallel: int | None = None
    """Ranks with different samples; None for all of the cluster."""
    causal_attention: bool = True
    """Whether fused attention kernels that the trace calls causal skip the half above the diagonal; of a trace that
    does not say, whether they are (a decode's single query has nothing to skip)."""
    attention_share: float = 1.0
    """What the trace's attention computes of the square of a sample's scores: less where ranks that share a sample
    leave out blocks that a mask would hide. FLOPs of the model count the square in full."""
    attention_kernel: Kernel | None = None
    """Generation of the fused kernels where it is known; None: those that torch and flash-attn choose today."""

    power_limit_watts: float | None = None
    """Of each device, where it is below the device's own."""
    layers: Layers = "torch"

    def __post_init__(self) -> None:
        if self.micro_batch < 1 or self.accumulation_steps < 1:
            raise InputError(
                f"a step needs at least one sample: micro batch {self.micro_batch}, "
                f"{self.accumulation_steps} accumulation steps"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTime:
    """What one degree sends in an optimizer step of one rank."""

    axis: Axis
    ranks: int | None
    """Ranks of a group; None for all of the cluster."""
    calls: int
    bytes: int
    """Of the tensors that are sent, as `Collective` counts them."""
    seconds: float
    """Of all its transfers, hidden or not."""
    exposed_seconds: float
    """By which the step would be shorter without them."""

    def times(self, count: int) -> "AxisTime":
        """Of `count` equal steps."""
        return replace(
            self,
            calls=self.calls * count,
            bytes=self.bytes * count,
            seconds=self.seconds * count,
            exposed_seconds=self.exposed_seconds * count,
        )

    def plus(self, other: "AxisTime | None") -> "AxisTime":
        """Of both, one after the other."""
        if other is None:
            return self
        return replace(
            self,
            calls=self.calls + other.calls,
            bytes=self.bytes + other.bytes,
            seconds=self.seconds + other.seconds,
            exposed_seconds=self.exposed_seconds + other.exposed_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step of one rank, all accumulation steps included.

    `step_seconds` = forward + backward + recompute + optimizer + exposed communication.
    """

    step_seconds: float
    ends: Callable[[], tuple[float, float]] = field(compare=False, repr=False)
    """The shortest step with the best rates that were published for this kind of device, and the longest with the worst
    ones; worked out when asked for."""
    forward_seconds: float
    backward_seconds: float
    """Without recomputation."""
    recompute_seconds: float
    optimizer_seconds: float
    communication_seconds: float
    """Between devices, hidden or not."""
    host_transfer_seconds: float
    """Between device and host, hidden or not."""
    exposed_communication_seconds: float
    """Of both kinds, the part during which the computation waits."""
    exposed_by_phase: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The same in forward, in backward with recomputation, and in the optimizer's step."""
    tokens_per_second_per_gpu: float
    samples_per_second: float
    """Of the whole cluster."""
    model_flops: float
    """Of one rank and one optimizer step, without any recomputation; causal attention counted in full."""
    mfu: float | None
    """Model FLOPs per second against the dense peak of the compute dtype; None where none is published."""
    basis: str
    """`measured`: every rate was measured on this device. `source`: derived from published rates of its kin.
    `assumed`: a rate that counts was published nowhere."""
    notes: tuple[str, ...] = field(default=())
    """Which rates, from where, in words."""
    corners: Callable[[], tuple[float, ...]] | None = field(default=None, compare=False, repr=False)
    """Seconds of the step where the device, the links between devices and the host are each slow or fast, in the same
    order for every step: what two steps share moves both. None: not known apart."""

    degrees: Callable[[], tuple[AxisTime, ...]] | None = field(default=None, compare=False, repr=False)
    """What each degree sends and how long the step waits for it. None: not known apart."""
    scaling: Callable[[], str | None] | None = field(default=None, compare=False, repr=False)
    """Why the devices together are not as many times as fast as one, in words; None for one."""
    trace: Callable[[str], dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    """The step as a Chrome/Perfetto trace under a title. None: no schedule is known."""

    @property
    def low_seconds(self) -> float:
        """The shortest of `ends`."""
        return self.ends()[0]

    @property
    def high_seconds(self) -> float:
        """The longest of `ends`."""
        return self.ends()[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """A step operator by operator, each row slow, expected and fast."""

    device: FloatArray
    """Seconds of each operator of a pass, in the order in which they run, [3, operators]."""
    issue: tuple[float, float, float]
    """Seconds that the host takes to issue one of them."""
    sent: Callable[[CollectiveKind, int], tuple[float, float, float]]
    """Seconds of a collective of all ranks, by its kind and bytes."""


class SpeedModel(Protocol):
    """Says how long a step takes."""

    @property
    def name(self) -> str:
        """Shown beside every figure: `roofline`."""
        ...

    def step_time(self, work: StepWork, cluster: Cluster) -> StepTime:
        """Time of one optimizer step of `work` on `cluster`. Finite and positive for every cluster."""
        ...

    def kernel_times(self, work: StepWork, cluster: Cluster) -> KernelTimes | None:
        """The same operator by operator; None where a rate that counts was published nowhere."""
        ...
