"""What every candidate comes to, whatever it does: memory against the device, a rate, and what to call it."""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.memory.allocator.replay import DEFAULT_SETTINGS
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.profile import StandingTensor
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Condition
from gpu_plan.planner.search.device_use import DeviceUse

if TYPE_CHECKING:
    from gpu_plan.planner.search.shown.sections import Sections


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(DeviceUse):
    """One candidate, judged; each task's own judgement says what its parts are."""

    allocator: AllocatorSettings = DEFAULT_SETTINGS
    host_terms: tuple[Term, ...] = ()
    """RAM of a node while the model is loaded, during steps and while it is saved; on a CPU during steps alone."""
    states_only: bool = False
    """Whether only what is there without any step was counted: a lower bound that already exceeds capacity."""
    usual_host_bytes: int | None = None
    """RAM of the smallest usual node; None where the node's own is known."""
    unknown_disk_bytes: int = 0
    """What it keeps on the disk of a node of which nothing is known."""
    presumed: tuple[Condition, ...] = ()
    """What was presumed of the data."""
    exact: "Judgement | None" = field(default=None, compare=False, repr=False)
    """The same with its allocator simulated, where that was done already."""
    shown: "Callable[[bool], Sections | None] | None" = field(default=None, compare=False, repr=False)
    """What a document says of it, where another process works that out; waited for where that is asked."""

    @property
    def title(self) -> str:
        """Name in messages: `ZeRO-2 with optimizer offload`."""
        raise NotImplementedError

    @property
    def stream(self) -> RankStream:
        """What the rank that is judged allocates and frees."""
        raise NotImplementedError

    @property
    def standing(self) -> tuple[StandingTensor, ...]:
        """What stands at the peak, where it is computed rather than read off the stream; largest first."""
        return ()

    @property
    def replayed(self) -> int:
        """Micro batch at which the stream is replayed."""
        raise NotImplementedError

    @property
    def schedule(self) -> Callable[[str], dict[str, Any]] | None:
        """Writes the step, stream by stream, under a title; None where there is no step."""
        return None

    @property
    def samples_per_second(self) -> float:
        """Of all devices together."""
        raise NotImplementedError

    @property
    def full_title(self) -> str:
        """The title, and what tells candidates of one title apart."""
        return self.title

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of one sample: expected; then, where known, under each assumption about rates that all candidates share."""
        return (1 / self.samples_per_second,)

    @property
    def expected_seconds(self) -> float:
        """The first of `seconds`, without the others."""
        return self.seconds[0]

    @property
    def compared_seconds(self) -> tuple[float, ...]:
        """The same as plans are compared by default: without what an engine gains by computing in fewer bits."""
        return self.seconds

    @property
    def compared_expected_seconds(self) -> float:
        """The first of `compared_seconds`, without the others."""
        return self.compared_seconds[0]

    @property
    def needless(self) -> bool:
        """Whether it shares out what every device could hold whole."""
        return False

    @property
    def moving_parts(self) -> int:
        """How much there is to set up and to go wrong."""
        return 0

    @property
    def tuned(self) -> bool:
        """Whether it has settings other than the engine's own that nobody asked for."""
        return False

    @property
    def staged(self) -> bool:
        """Whether a copy of the model is cut into stages, which a schedule keeps busy."""
        return False

    @property
    def accumulates(self) -> bool:
        """Whether it takes several micro batches to a step, which nobody asked for."""
        return False

    @property
    def offloads(self) -> bool:
        """Whether what a device would hold stands in a node's RAM or on its disk instead."""
        return False

    @property
    def kept_host_bytes(self) -> int:
        """RAM of a node that stays taken during the run."""
        return self.host_bytes

    @property
    def needed_host_bytes(self) -> int:
        """RAM that a node certainly needs, at the worst moment."""
        return self.kept_host_bytes

    @property
    def room_bytes(self) -> int:
        """Of the device's capacity, what is expected to stay free."""
        return self.capacity_bytes - self.expected_bytes

    @property
    def identity(self) -> tuple[Any, ...]:
        """What no other candidate of the same search shares; for an order that does not depend on chance."""
        return (self.title,)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What it needs and what is not known to be there."""
        found, needed = [*self.presumed], self.needed_host_bytes
        if self.usual_host_bytes is not None and not self.shares_host and needed > self.usual_host_bytes:
            found.append(Condition(needs="host RAM", bytes=needed, option="--host-ram"))
        if self.unknown_disk_bytes:
            found.append(Condition(needs="NVMe", bytes=self.unknown_disk_bytes, option="--host-nvme"))
        return tuple(found)

    @property
    def sections(self) -> "Sections | None":
        """What a document says of it, where that is known already."""
        return None if self.shown is None else self.shown(True)

    @property
    def used_bytes(self) -> int:
        """What the device is expected to show in use."""
        known = None if self.sections is None else self.sections.memory
        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        return super(Judgement, self).used_bytes if known is None else known.device_used_bytes  # noqa: UP008

    @property
    def used_so_far(self) -> int:
        """The same, or what it is about where another process is still at it."""
        known = None if self.shown is None else self.shown(False)
        return self.used_bytes if self.shown is None or known is not None else self.expected_bytes

    @property
    def device_verdict(self) -> str:
        """The verdict as far as the device goes."""
        return super(Judgement, self).verdict  # noqa: UP008  # as above

    @property
    def verdict(self) -> str:
        """As of the device; `tight` where it fits and a condition is not known to hold."""
        found = self.device_verdict
        return "tight" if found == "fits" and self.conditions else found

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures rest on, read in real code."""
        raise NotImplementedError

    @property
    def failure_reason(self) -> str | None:
        """Why the real code ends with an error, whatever the memory; None where it runs."""
        return None

    @property
    def peak_words(self) -> str:
        """Where the peak is, as reasons say it behind a size: ` in prefill`; empty where it goes without saying."""
        return ""
