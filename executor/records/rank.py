"""What one rank writes of itself: `rank-N.json`. Plain values; the writer needs no import but the standard library.

A rank replaces its whole record atomically: at its start, about every half second in which a step ended, at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1
FIRST_STEPS = 32
LAST_STEPS = 256
"""A record keeps the first and the last steps; `summary` covers all of them."""

RankStatus = Literal["starting", "running", "done", "exception", "oom", "exit", "interrupted", "peer_failure"]
"""`oom`: an allocation failed, on the device or on the host. `peer_failure`: a collective failed because of another
rank. A rank that was killed still says `running`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """How the script ended, when not well."""

    type: str
    """Qualified class name, such as `torch.OutOfMemoryError`."""
    message: str
    file: str | None = None
    line: int | None = None
    """The last frame inside the user's own files."""
    traceback: str = ""
    requested_bytes: int | None = None
    """What a failed allocation asked for."""
    full_disk: str | None = None
    """What could not be written because its disk was full, or a quota used up; empty where the error does not name it,
    None for every other error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What the rank saw of the job that really ran. None or empty: not seen, which is not the same as absent."""

    world_size: int | None = None
    distributed_type: str | None = None
    """As accelerate names it (`NO`, `MULTI_GPU`, `FSDP`, `DEEPSPEED`); `DDP` for a plain torch loop."""
    strategy: str | None = None
    """`single`, `ddp`, `fsdp`, `fsdp1`, `hsdp`, `zero1`, `zero2`, `zero3`, read from the wrapped model itself."""
    tensor_parallel: int | None = None
    """Ranks that compute one copy of the model together."""
    expert_parallel: int | None = None
    """Ranks that hold whole experts each."""
    backend: str | None = None
    wrapped_classes: tuple[str, ...] = ()
    """Classes around the model and its units, outermost first."""
    mixed_precision: str | None = None
    parameter_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Elements by torch dtype name, of the whole model, sharded or not."""
    parameters: int | None = None
    trainable_parameters: int | None = None
    parameters_per_added_token: int | None = None
    """Where the script has resized its embeddings: what one token adds."""
    optimizers: tuple[str, ...] = ()
    optimizers_given: tuple[str, ...] = ()
    """Classes that the script gave to its Accelerator."""
    batch_shapes: tuple[tuple[int, ...], ...] = ()
    """Distinct shapes of the first tensor of a batch, first seen first; at most 16."""
    micro_batch_size: int | None = None
    sequence_length: int | None = None
    gradient_accumulation_steps: int | None = None
    """Backward passes per optimizer step, counted."""
    clipping_asked: float | None = None
    """Norm to which the script last asked for its gradients to be clipped; None where it never did."""
    clipping_of_engine: float | None = None
    """Norm to which DeepSpeed's engine clips, 0 for not at all; None without one."""
    checkpointing: bool | None = None
    """Whether activation checkpointing was on."""
    compiled: bool | None = None
    """Whether torch.compile wrapped a model, and made at least one graph of it."""
    stack: str | None = None
    """`accelerate`, `trainer`, `lightning`, `plain`: who ran the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimizer step."""

    step: int
    """From 1, over the whole job: a resumed attempt goes on counting."""
    seconds: float
    micro_batches: int
    samples: int | None = None
    tokens: int | None = None
    loss: float | None = None
    not_finite: str | None = None
    """`nan`, `inf` or `-inf` where the loss is that; `loss` is None then. Not of a step that a scaler skipped."""
    peak_allocated_bytes: int | None = None
    """CUDA: max_memory_allocated within the step. CPU: None."""
    peak_reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    """CUDA: total less free of mem_get_info, at the end of the step."""
    resident_bytes: int | None = None
    """Peak of the process's resident memory within the step where the kernel tells, else at its end."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """Peak allocated (CUDA) or resident (CPU) bytes by phase: forward, backward, optimizer; of a batch of prompts
    prefill, decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """All steps of the attempt together; the first is left out of the times."""

    steps: int = 0
    seconds_median: float | None = None
    seconds_max: float | None = None
    tokens: int = 0
    samples: int = 0
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_used_bytes: int | None = None
    peak_resident_bytes: int | None = None
    phases: Mapping[str, int] = field(default_factory=dict)
    last_loss: float | None = None
    """Of the last step whose loss is known; None where that is no finite number."""
    last_not_finite: str | None = None
    """`nan`, `inf` or `-inf` where that step's loss is no finite number."""
    not_finite_steps: int = 0
    """How many steps had such a loss."""
    first_not_finite: int | None = None
    """The first of them, over the whole job."""

    @property
    def shown_loss(self) -> float | None:
        """The last loss as a number, NaN and infinities included."""
        return self.last_loss if self.last_not_finite is None else float(self.last_not_finite)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """One device of an inference rank; bytes."""

    device: str
    """`cuda:0`, `cpu`, `disk`."""
    weight_bytes: int = 0
    """Of the weights that the map keeps there."""
    peak_bytes: int | None = None
    """Highest allocated on a GPU, highest resident on the CPU; None for the disk."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """The same by phase: load, prefill, decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFigures:
    """What a rank that runs prompts measured; its steps are batches."""

    layout: str
    """`single`, `tensor`, `pipeline`, `replicas`."""
    loaded_by: str
    prompts: int
    """Of the whole run."""
    done_before: int
    """Prompts that earlier attempts or runs had done."""
    done: int
    """Prompts that this rank has done in this attempt."""
    load_seconds: float
    libraries_bytes: int = 0
    """Resident before the first weight was read: the interpreter, its libraries, the empty model."""
    timed_batches: int = 0
    """To which the times below belong: all but the first, which warms up, where there are others."""
    prefill_seconds: float = 0.0
    prefill_tokens: int = 0
    """Padding included: what was computed."""
    decode_seconds: float = 0.0
    decode_steps: int = 0
    """Forward passes of one token for each prompt of a batch."""
    decode_tokens: int = 0
    """What came of them, finished prompts not counted."""
    devices: tuple[DeviceMemory, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The whole of `rank-N.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    attempt: int
    rank: int
    local_rank: int
    world_size: int
    pid: int
    host: str
    device: str
    """`cpu`, `cuda:0`, ..."""
    status: RankStatus
    started: float
    updated: float
    """Seconds since the epoch."""
    base_resident_bytes: int | None = None
    """Resident memory before the script's first line."""
    actual: Actual = field(default_factory=Actual)
    steps: tuple[StepRecord, ...] = ()
    summary: StepSummary = field(default_factory=StepSummary)
    error: RankError | None = None
    exit_code: int | None = None
    moments: Mapping[str, float] = field(default_factory=dict)
    """When something was first so, in seconds since the epoch: `torch` imported, `training` begun (the first forward
    pass), `first_step` done."""
    left: str | None = None
    """Where the script left by `sys.exit(0)` or `SystemExit` without a code; None where it ran to its end."""
    inference: InferenceFigures | None = None
    """None for a rank that trains."""
    checkpoints: tuple[str, ...] = ()
    """Folders that this rank saved completely, relative to the working directory where they lie below it."""
    notes: tuple[str, ...] = ()
    """What could not be observed, and why."""
