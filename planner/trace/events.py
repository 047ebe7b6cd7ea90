"""The recorded step as plain arrays: what was allocated, when, why, and when it went away.

Nothing here imports torch: a trace is read back and replayed without it.
"""

import re
from dataclasses import field
from enum import IntEnum, StrEnum
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.rules import Ruled

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


NARROW: dict[str, type[np.signedinteger[Any]]] = {
    **dict.fromkeys(("kind", "category", "op_phase"), np.int8),
    **dict.fromkeys(("subject", "tensor_module", "tensor_operator", "tensor_parameter"), np.int32),
    **dict.fromkeys(("op_name", "op_module", "op_reads_at", "op_reads", "op_writes_at", "op_writes"), np.int32),
}
"""Columns of a trace that is read hold numbers in as few bytes: large models are planned with dozens of traces. Bytes
and what grows with them stay in 64 bits; with a larger number of Python's numpy refuses to compute in fewer."""


class Kind(IntEnum):
    """What an event says about its subject."""

    ALLOC = 0
    """A storage came to life; subject: tensor."""
    FREE = 1
    """A storage died; subject: tensor."""
    ENTER = 2
    """A module's forward began (in the backward phase: its recomputation); subject: module."""
    EXIT = 3
    """A module's forward ended; subject: module."""
    BACKWARD_ENTER = 4
    """The first backward node of a module ran; subject: module."""
    BACKWARD_EXIT = 5
    """The last backward node of a module has run; subject: module."""
    GRADIENT = 6
    """A parameter's gradient is complete for this backward pass; subject: parameter."""
    MARK = 7
    """A point of the loop; subject: a `Mark`."""
    OPERATOR = 8
    """A kernel ran; subject: operator record."""


class Mark(IntEnum):
    """Points of the training loop that strategies hang their work on."""

    FORWARD = 0
    OUTPUTS_BOUND = 1
    """The model returned and the loop's variable was rebound: what it held before is gone. A loss that the loop makes
    itself follows."""
    BACKWARD = 2
    BACKWARD_END = 3
    WEIGHTS = 4
    """Within a backward pass that is split: its input's gradient stands, those of the weights come next."""


class Category(StrEnum):
    """Memory categories, in the order in which they are shown."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    COMMUNICATION = "communication"
    BUFFERS = "buffers"
    INPUTS = "inputs"
    KV_CACHE = "kv_cache"


CATEGORIES: tuple[Category, ...] = tuple(Category)
CATEGORY_INDEX: dict[Category, int] = {category: index for index, category in enumerate(CATEGORIES)}


@cache
def _product(sizes: tuple[int, ...]) -> int:
    return prod(sizes)


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@cache
def numberless(name: str) -> str:
    """`layers.#.q.weight` of `layers.3.q.weight`: what parameters of repeated blocks have in common."""
    return _NUMBER.sub("#", name)


_GROWING = re.compile(r"<(-?\d+)\*B\+(-?\d+)>")


def shape_text(low: tuple[int, ...], high: tuple[int, ...], at: int, span: int) -> str:
    """`[2, 4096]` from the shapes at micro batches `at` and `at + span`; sizes that grow become `<slope*B+fixed>`."""
    if len(low) != len(high) or span == 0:
        return f"[{', '.join(map(str, high))}]"
    slopes = [(last - first) // span for first, last in zip(low, high, strict=True)]
    sizes = [
        f"<{slope}*B+{first - slope * at}>" if slope else str(first) for first, slope in zip(low, slopes, strict=True)
    ]
    return f"[{', '.join(sizes)}]"


def shape_at(text: str, micro_batch: int) -> str:
    """A `tensor_shape` at one micro batch: `[<1*B+0>, 8] int64` becomes `[4, 8] int64`."""
    return _GROWING.sub(lambda size: str(int(size[1]) * micro_batch + int(size[2])), text)


@dataclass(slots=True, kw_only=True)
class ParameterInfo:
    """One parameter as the model holds it (tied weights once)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Stored dtype of the model as built, before any strategy casts it."""
    trainable: bool
    module: str
    split: bool = False
    """Whether the ranks that compute one copy of the model each hold a part of it; `shape` is this rank's."""
    experts: bool = False
    """Whether it is this rank's own experts, of which others hold the rest (`--ep`)."""
    tied_to: str = ""
    """Parameter whose shard it is as well, though it is gathered and gets its gradient apart."""

    @property
    def numel(self) -> int:
        return _product(self.shape)

    @property
    def mesh(self) -> int:
        """What tells the meshes of a rank's parameters apart: an optimizer steps those of one mesh together."""
        return 2 if self.experts else int(self.split)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLayout:
    """Places in the model that strategies treat on their own."""

    blocks: tuple[str, ...] = ()
    """Modules wrapped one by one: instances of the classes that the model says not to split."""
    block_classes: tuple[str, ...] = ()
    """Class name of each block."""
    input_embedding: str | None = None
    output_embedding: str | None = None
    final_norm: str | None = None
    tied: bool = False
    """Whether the input and the output embedding are one weight."""
    hidden_size: int | None = None
    float8_linears: tuple[str, ...] = ()
    """Linear layers that compute in float8."""
    wrapped: tuple[str, ...] = ()
    """Modules that the class's own FSDP plan shards apart, gathered anew for backward; none where nobody asked it."""
    wrapped_whole: tuple[str, ...] = ()
    """Of the same plan, those that stay whole from forward to backward."""
    shared: tuple[str, ...] = ()
    """Parameters that several modules hold, but for the weight that the two embeddings share: the names of the modules
    of each, with spaces between them."""
    viewed: tuple[str, ...] = ()
    """`numberless` names of parameters that a step used through views which autograd keeps, outside of torch's linear
    function."""
    read: tuple[str, ...] = ()
    """`numberless` names of parameters that a module above their own reads while theirs does not run, each with a space
    and how many parts of the name are that module's: `layers.#.mixer.conv1d.weight 3`."""


@dataclass(slots=True, weakref_slot=True, kw_only=True)
class StepTrace:
    """One forward and backward pass of a rank that holds the whole model.

    Event arrays have one entry per event in time order; tensor arrays one per storage. Storage bytes are
    `bytes_fixed + bytes_per_sample × micro batch`, requested bytes before any allocator rounding.
    """

    kind: IntArray
    subject: IntArray
    """Tensor, module, parameter, mark or operator index, as `kind` says."""
    bytes_fixed: IntArray
    bytes_per_sample: IntArray
    category: IntArray
    """Index into CATEGORIES."""
    tensor_module: IntArray
    """Module in which the storage was made."""
    tensor_operator: IntArray
    """Index into `operator_names` of what made it."""
    tensor_shape: list[str]
    """Shape and dtype of the first tensor over the storage, for people: `[2, 4096] bfloat16`, or, where a size grows
    with the micro batch B, `[<1*B+0>, 4096] bfloat16`; see `shape_at`."""
    tensor_parameter: IntArray
    """Parameter whose gradient this storage becomes, or -1."""
    modules: list[str]
    """Qualified module names; index 0 is the root, ''."""
    operator_names: list[str]
    op_name: IntArray
    op_module: IntArray
    op_phase: IntArray
    """0 forward, 1 backward, 2 recomputation."""
    op_flops_fixed: FloatArray
    op_flops_per_sample: FloatArray
    op_bytes_fixed: FloatArray
    """Bytes read and written by the operator that do not grow with the batch."""
    op_bytes_per_sample: FloatArray
    op_reads_at: IntArray
    """Operator i reads storages `op_reads[op_reads_at[i]:op_reads_at[i + 1]]`."""
    op_reads: IntArray
    """Storages read; -1 for parameters, buffers and inputs."""
    op_writes_at: IntArray
    op_writes: IntArray
    parameters: list[ParameterInfo]
    buffer_bytes: list[tuple[str, int]]
    inputs: list[tuple[str, int, int]]
    """Batch tensors: name, bytes per sample, fixed bytes."""
    samples: tuple[int, ...]
    """Micro batches at which this trace was recorded; the linear form is exact for these and between."""
    tokens_per_sample: int
    layout: ModuleLayout = field(default_factory=ModuleLayout)
    tensor_origin: list[str] = field(default_factory=list)
    """Of a captured script: the user's line that made each storage, or ''. Empty for a model by name."""
    tensor_rule: list[Ruled | None] = field(default_factory=list)
    """While sizes are being told from those of recordings: temporaries that lie on no line. Empty in a trace that is
    handed out; see `gpu_plan.planner.trace.sizes.settled`."""
    held: list[int] = field(default_factory=list)
    """Of a captured script: storages that it never gives back, a step's worth of them for every step."""
    host_reads: list[str] = field(default_factory=list)
    """Each answered host read: site, answer, what it assumes."""
    notes: list[str] = field(default_factory=list)

    @property
    def num_events(self) -> int:
        return len(self.kind)

    @property
    def num_tensors(self) -> int:
        return len(self.bytes_fixed)

    def has_mark(self, mark: Mark) -> bool:
        """Whether the loop came by a point: the second half of a backward that is not split it did not."""
        return bool(((self.kind == Kind.MARK) & (self.subject == int(mark))).any())

    def mark_position(self, mark: Mark) -> int:
        """Index of the event that marks a point of the loop."""
        hits = np.flatnonzero((self.kind == Kind.MARK) & (self.subject == mark))
        return int(hits[0])

    def tensor_bytes(self, micro_batch: int) -> IntArray:
        """Requested bytes of every storage at a micro batch."""
        return self.bytes_fixed + self.bytes_per_sample * micro_batch
