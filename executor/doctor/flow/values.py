"""What is known of one value: its kind, marks that spread through expressions, and where it was made."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

LOCAL = "local"
"""Differs between ranks: outputs, losses, batches, clocks, the rank itself."""
SAMPLE = "sample"
"""One row for each sample of the batch."""
LOSS = "loss"
GENERATED = "generated"
"""Comes from `generate`: its length differs between ranks."""
DIVIDED = "divided"
"""Was divided by the number of accumulation steps."""
PREPARED = "prepared"
"""Came out of `Accelerator.prepare`."""
MAYBE_PREPARED = "maybe_prepared"
"""Prepared on some ways through the script only."""
WRAPPED = "wrapped"
"""Wrapped by the script itself: DistributedDataParallel, FullyShardedDataParallel, DeepSpeed."""
COMPILED = "compiled"
UNWRAPPED = "unwrapped"
OWN_DEVICE = "own_device"
"""A device that Accelerate or the rank chose."""
SHARDED_LENGTH = "sharded_length"
"""Counts batches of one rank only."""
PER_RANK = "per_rank"
"""Depends on the rank's number, on purpose."""
STATE_DICT = "state_dict"
AUTO_MAP = "auto_map"
"""Loaded with device_map="auto"."""
RANK_SAMPLER = "rank_sampler"
"""A DistributedSampler shares the data out."""

_SPREADING = frozenset({LOCAL, DIVIDED, PER_RANK, SHARDED_LENGTH, GENERATED, SAMPLE, LOSS})
"""Marks that the result of an operation takes from its operands."""


@dataclass(frozen=True, slots=True)
class Value:
    """An abstract value; the empty one is a value of which nothing is known."""

    kind: str = ""
    """`accelerator`, `state`, `model`, `optimizer`, `scheduler`, `loader`, `batch`, `output`, `sampler`, `parameters`,
    `trainer`, `scaler`, `criterion`, `rank`, `main_flag`, `device`, `function`, `class`, `instance`, or empty."""
    marks: frozenset[str] = frozenset()
    origins: frozenset[int] = frozenset()
    """Places where the object, or what it holds, was made: identities of calls."""
    items: tuple["Value", ...] | None = None
    """Of a tuple or list: its elements."""
    target: ast.AST | None = None
    """Of a function, class or instance: its definition. Of a loader: the call that made it."""

    def has(self, mark: str) -> bool:
        return mark in self.marks

    def with_marks(self, *marks: str) -> "Value":
        return replace(self, marks=self.marks | frozenset(marks))

    def without(self, *marks: str) -> "Value":
        return replace(self, marks=self.marks - frozenset(marks))


NOTHING = Value()


def join(values: Iterable[Value]) -> Value:
    """What holds of any of `values`: a kind that they share or that one alone has, all marks and origins."""
    listed = [value for value in values if value != NOTHING]
    if not listed:
        return NOTHING
    first = listed[0]
    if all(value == first for value in listed):
        return first
    kinds = {value.kind for value in listed if value.kind}
    targets = {value.target for value in listed if value.target is not None}
    lengths = {len(value.items) for value in listed if value.items is not None}
    items: tuple[Value, ...] | None = None
    if len(lengths) == 1:
        rows = [value.items for value in listed if value.items is not None]
        items = tuple(join(column) for column in zip(*rows, strict=True))
    marks = frozenset().union(*(value.marks for value in listed))
    if PREPARED in marks and not all(value.has(PREPARED) for value in listed if value.kind in kinds):
        marks = (marks - {PREPARED}) | {MAYBE_PREPARED}
    return Value(
        kind=kinds.pop() if len(kinds) == 1 else "",
        marks=marks,
        origins=frozenset().union(*(value.origins for value in listed)),
        items=items,
        target=targets.pop() if len(targets) == 1 else None,
    )


def spread(values: Iterable[Value]) -> Value:
    """The result of an operation of which nothing is known but its operands."""
    marks = frozenset().union(*(all_marks(value) for value in values))
    return Value(marks=marks & _SPREADING)


def all_marks(value: Value) -> frozenset[str]:
    """Marks of a value and of its elements."""
    inner = [all_marks(item) for item in value.items or ()]
    return value.marks.union(*inner)


def flat(value: Value) -> tuple[Value, ...]:
    """The elements of a (nested) tuple, or the value itself."""
    if value.items is None:
        return (value,)
    return tuple(leaf for item in value.items for leaf in flat(item))
