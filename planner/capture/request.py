"""What the planning process and the capturing child say to each other; plain values, no torch."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION
from gpu_plan.planner.workload.training import Checkpointing


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """The GPU that the script is told it runs on."""

    name: str
    total_bytes: int
    capability_major: int | None
    """None: a CPU, and no CUDA is shown."""
    capability_minor: int = 0
    sm_count: int = 0
    count: int = 1
    """Devices of one node: what each rank of a script that is started by a launcher sees."""
    bf16: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """One run of a script in the child."""

    script: str
    """Absolute path."""
    arguments: tuple[str, ...] = ()
    working_directory: str
    device: PlannedDevice
    world_size: int = 1
    """What a script that joins a process group is told."""
    regime: Regime | None = None
    """Types in which a strategy computes; None: as the script sets it up."""
    checkpointing: Checkpointing | None = None
    """None: as the script sets it up."""
    micro_batch: int | None = None
    """Samples per batch that loaders are made to give; None: the script's own."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Model configs by hub id, as JSON text: what the closed network would have given; empty where there is none."""
    follow: bool = False
    """Whether the script is watched beyond its first step, for what it never gives back."""
    seconds: float = 180.0
    """Of processor time, of the script and all that it starts; how long it may stand still follows from it."""
    resident_bytes: int = 4 * 2**30
    written_bytes: int = 2**30
    processes: int = 64
    standin: bool = False
    """Whether data sets and tokenizers that are not at hand are stood in for."""
    unwalled: bool = False
    """Whether it runs where the machine offers no walls, with the user's own rights."""
    rolls_out: bool = True
    """Whether a generation before the step is run to see what it holds; False: that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer as the script made it."""

    class_name: str
    """Qualified, such as `torch.optim.adamw.AdamW`."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The options of its first group that decide what it allocates: fused, foreach, momentum, amsgrad."""
    groups: int = 1
    parameters: int = 0
    """Elements that it updates."""
    state_bytes: int = 0
    """Of its state after the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLengths:
    """Tokens of samples that the script's own loader and collator gave."""

    samples: int
    longest: int
    median: int
    typical_batch: int
    """Median of what random micro batches are padded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """DeepSpeed's engine as the script set it up."""

    stage: int
    offload: str = "none"
    """As `--offload` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingFacts:
    """torch's FSDP as the script set it up by itself."""

    computed: str = ""
    """dtype in which parameters are gathered and forward computes, by a policy; empty: their own."""
    reduced: str = ""
    """dtype in which gradients are reduced, where every wrapped module has one."""
    offloaded: bool = False
    kept: bool = False
    """Whether gathered parameters stay from forward to backward."""
    replicas: int = 0
    """Copies of the sharded whole; 0: as many as the mesh that was not given has, one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """One storage at the peak of a passage: bytes for any number of rows."""

    fixed: int
    per_row: int = 0
    category: str = "activations"
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Something that runs before the step, in every iteration: what stands at its peak beside what stood before."""

    name: str
    """`prefill`, `decode`, `log-probabilities`."""
    model: int = 0
    """Which of the job's models computes."""
    rows: int = 0
    """Samples of the pass that was recorded; 0 where bytes are a line over the rows."""
    standing: tuple[Stood, ...] = ()

    def nbytes(self, rows: int) -> int:
        """Of all that stands."""
        return sum(one.fixed + one.per_row * rows for one in self.standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFacts:
    """What the script turned out to do, beside the trace."""

    class_name: str
    model_id: str | None = None
    """The name that its config carries, where it has one."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """Fields of gpu_plan.planner.model.spec.ModelSpec."""
    config: str = ""
    """That of a model of transformers, as JSON; empty for any other."""
    stack: str = "plain"
    """As `--stack` has it."""
    loop: str = "plain"
    """Who runs the loop, in finer words: `lightning`, `SFTTrainer`, ..."""
    precision: str = PLAIN_PRECISION
    """As `--precision` has it."""
    optimizer: str | None = None
    """As `--optimizer` has it; None for one that no plan knows."""
    optimizers: tuple[OptimizerFacts, ...] = ()
    schedulers: tuple[str, ...] = ()
    micro_batch: int = 1
    seq_len: int | None = None
    rows: int = 1
    """Rows of the micro batch that the model was given: a pair of chosen and rejected is one sample of two rows."""
    lengths: SampledLengths | None = None
    """Where the loader's samples are of several lengths; the step that was captured is of the longest."""
    batch: Mapping[str, str] = field(default_factory=dict)
    """Shape and dtype of each tensor that the model was given."""
    accumulation_steps: int = 1
    checkpointing: str = "none"
    attention: str = "sdpa"
    peft: str = NO_ADAPTERS
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    wrapper: str = ""
    """Class in which the script wraps its model for several devices by itself; empty where it leaves that to others."""
    starts_ranks: bool = False
    """Whether it starts a process for each rank by itself, as torch.multiprocessing.spawn does."""
    engine: EngineFacts | None = None
    """Where DeepSpeed's engine runs the script's step."""
    sharding: ShardingFacts | None = None
    """Where the script's own FSDP wraps its model."""
    clipping: float | None = None
    """Norm to which gradients are clipped before the step; None where they are not."""
    compiled: bool = False
    models: int = 1
    called_parameters: int = 0
    """Of the models of which something is trained: a training step calls those, and a frozen one beside them under
    no_grad."""
    passages: tuple[Passage, ...] = ()
    """What ran before the step in the same iteration: a rollout, log-probabilities."""
    rolled_out_rows: int = 0
    """Samples that were generated at once, for so many passes of the accumulation."""
    walls: Literal["namespaces", "landlock", "none"] = "none"
    """What stood around it."""
    notes: tuple[str, ...] = ()
    standins: tuple[str, ...] = ()
    """What was not at hand and is stood in for, one sentence each."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Lines of the user's files by kind: see gpu_plan.planner.capture.watch.noticed."""
    resident_bytes: int = 0
    """Peak of the child."""
    seconds: float = 0.0


Stage = Literal["captured", "no_step", "raised", "exited", "input", "network", "unsupported", "limit", "walls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the child ended; the trace, if there is one, follows it in the same pipe: see `framed`."""

    stage: Stage
    message: str = ""
    """One line."""
    file: str | None = None
    line: int | None = None
    needs: str | None = None
    """A hub id whose config is not at hand."""
    facts: CapturedFacts | None = None
    whole: str = ""
    """The whole traceback of an exception."""


MOST_BYTES = 2**29
"""Of an outcome and its trace; what would be longer is none of ours."""
_HEAD = struct.Struct(">Q")


def framed(outcome: bytes, trace: bytes | None) -> bytes:
    """An outcome, as JSON, and its trace as they go through the pipe."""
    return _HEAD.pack(len(outcome)) + outcome + (trace or b"")


def unframed(content: bytes) -> tuple[bytes, bytes | None] | None:
    """The two again, the trace unread; None where they are not whole."""
    if len(content) < _HEAD.size:
        return None
    end = _HEAD.size + _HEAD.unpack_from(content)[0]
    return (content[_HEAD.size : end], content[end:] or None) if len(content) >= end else None
