"""What ZeRO-3's coordinator takes and gives: where its buffers lie, its bounds, and how it gathers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from gpu_plan.planner.plain.values import dataclass

_At = TypeVar("_At", contravariant=True)
GATHERED, COALESCED, PERSISTENT = "gathered weight", "coalesced all-gather", "persistent weight"
"""What is taken: a parameter whole, the flat buffer of a call for several, and what stays whole from a step on."""


class Storage(Protocol[_At]):
    """Where the coordinator's buffers are put."""

    def take(self, at: _At, elements: int, label: str, padded: Sequence[int] = ()) -> int:
        """Allocates; returns a ticket. `padded`: parameters whose elements these are, padded to the ranks' parts."""
        ...

    def fetch(self, at: _At, elements: int, parameter: int) -> int:
        """This rank's partition on the device, copied over where partitions lie on the host; returns a ticket."""
        ...

    def give(self, at: _At, ticket: int) -> None:
        """Frees what a ticket stands for."""
        ...

    def gather(self, at: _At, elements: int, parameters: Sequence[int]) -> None:
        """An all-gather of these parameters into what was just taken."""
        ...

    def limit(self, at: _At) -> None:
        """A parameter in flight is about to be waited for: the host may have to wait for an older one first."""
        ...

    def use(self, at: _At, landed: int) -> None:
        """The computation waits for what was gathered so far; so many parameters have just landed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The configuration's bounds, in elements."""

    prefetch: int
    max_live: int
    max_reuse: int
    world_size: int


class Gather(NamedTuple):
    """One kind of all-gather: elements of the whole, whether backward, whether ahead of its use, its parameters."""

    elements: int
    backward: bool
    ahead: bool
    parameters: int = 1


class Gathered(NamedTuple):
    """The same by which parameters they are."""

    parameters: tuple[int, ...]
    backward: bool
    ahead: bool
