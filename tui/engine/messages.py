"""What the explorer asks of its planner processes, and what they answer. Plain values, pickled between our own."""

import pickle
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal

from gpu_plan.planner.options.request import Request
from gpu_plan.planner.plan.document import PlanDocument, TensorLine
from gpu_plan.planner.plan.drawn.lanes import Lane

if TYPE_CHECKING:
    from gpu_plan.planner.model.spec import ModelSpec
    from gpu_plan.planner.plan.timeline import Timeline

Kind = Literal["picture", "tensors", "lanes", "trace", "search", "document"]
"""`picture`: one configuration's figures; `tensors`: all that stands at its peak; `lanes`: its step, stream by stream;
`trace`: what the picture lacks; `search`: the table of plans; `document`: the whole answer of the main job, to leave
with or with what else could be done."""

Wanted = Literal["each", "first", "exact"]
"""Of the pictures of one configuration: each as it comes, the first alone, or the exact one without those before it."""

_HEAD = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question; a newer one of the same kind takes its place."""

    number: int
    kind: Kind
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Configurations that may be asked for next, the likeliest first; a newer list or question takes its place."""

    number: int
    """Counted with the asks: a picture that was asked for before is no longer waited for, but for `wanted`."""
    wanted: int = 0
    """The picture's ask that is on the screen and may still be completed; 0: none."""
    rough: tuple[Request, ...]
    """To be summed."""
    exact: tuple[Request, ...]
    """To be simulated once everything is summed, and what takes longest prepared."""
    prepared: tuple[Request, ...] = ()
    """Those whose layout is to be prepared before that, where it takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A step of the worst rank, drawn in columns: in each, the moment at which most is allocated."""

    categories: tuple[str, ...]
    levels: tuple[tuple[int, ...], ...]
    """For each column the bytes of each category."""
    phases: tuple[str, ...]
    """The phase of each column."""
    peak: int
    """The column that holds the peak."""
    events: int
    """Allocations and frees in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that are alike."""

    name: str
    at_peak: tuple[tuple[str, int], ...]
    """Bytes by category at the peak."""
    peak_allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One configuration, evaluated."""

    document: PlanDocument
    """With that configuration alone."""
    exact: bool
    """Whether the allocator was simulated; else the figures are the tensors' sums, a lower bound."""
    states_only: bool = False
    """Whether they are those of model states alone, a lower bound before anything is traced or laid out."""
    columns: Columns | None = None
    ranks: tuple[RankClass, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePayload:
    """Traces on their way from the process that traces to the one that replays: one, or one of each rank that computes
    another part."""

    request: Request
    """Whose model, device, attention and adapters they are of."""
    spec: "ModelSpec"
    traces: tuple[tuple[str, bytes], ...]
    """Key of each variant and its trace, as `gpu_plan.planner.trace.storage.dump` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParcel:
    """The generations that one picture of --task infer needs, on the same way."""

    request: Request
    spec: "ModelSpec"
    merged: frozenset[str]
    """Parameters that loading puts together from several tensors."""
    traces: tuple[tuple[str, bytes], ...]
    """Key of each variant and its trace, as `gpu_plan.planner.trace.storage.dump` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureParcel:
    """What a training script was seen to do, on the same way."""

    request: Request
    captures: tuple[tuple[str, bytes, bytes], ...]
    """Key, facts as JSON and trace of each run of the script."""


AnyParcel = TracePayload | GenerationParcel | CaptureParcel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, or a part of one. Only what belongs to its kind is set."""

    number: int
    """Of the ask; 0 for what nobody has asked for yet."""
    kind: Literal[
        "picture", "ahead", "tensors", "lanes", "untraced", "traced", "found", "progress", "refused", "broken"
    ]
    """`ahead`: a picture of `of` before it is asked for; `untraced`: the picture needs a trace that is not kept;
    `refused`: the options make no sense, in words;
    `broken`: a fault of ours."""
    picture: Picture | None = None
    of: str = ""
    """The command line that a picture `ahead` is of."""
    tensors: tuple[TensorLine, ...] = ()
    document: PlanDocument | None = None
    parcel: AnyParcel | None = None
    timeline: "Timeline | None" = None
    """Of a document that was asked for with its timeline."""
    lanes: tuple[Lane, ...] = ()
    """Of the step of a document, or of the picture; a generation has none."""
    text: str = ""


def write(stream: BinaryIO, message: object) -> None:
    """One message, with its length before it."""
    stream.write(packed(message))
    stream.flush()


def packed(message: object) -> bytes:
    """One message as bytes."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(content)) + content


def read(stream: BinaryIO) -> object | None:
    """The next message; None at the end."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    (size,) = _HEAD.unpack(head)
    content = stream.read(size)
    return pickle.loads(content) if len(content) == size else None


HEAD_BYTES = _HEAD.size


def length(head: bytes) -> int:
    """Bytes of the message that follows its head."""
    (size,) = _HEAD.unpack(head)
    return int(size)


def unpacked(content: bytes) -> object:
    """A message of our own child."""
    return pickle.loads(content)
