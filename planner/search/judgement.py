"""What every candidate comes to, whatever it does: memory against the device, a rate, and what to call it."""

from dataclasses import dataclass

from gpu_plan.planner.memory.allocator.replay import DEFAULT_SETTINGS
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.stream import RankStream
from gpu_plan.planner.search.device_use import DeviceUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(DeviceUse):
    """One candidate, judged; each task's own judgement says what its parts are."""

    allocator: AllocatorSettings = DEFAULT_SETTINGS
    host_terms: tuple[Term, ...] = ()
    """RAM of a node while the model is loaded, during steps and while it is saved; on a CPU during steps alone."""
    states_only: bool = False
    """Whether only what is there without any step was counted: a lower bound that already exceeds capacity."""

    @property
    def title(self) -> str:
        """Name in messages: `ZeRO-2 with optimizer offload`."""
        raise NotImplementedError

    @property
    def stream(self) -> RankStream:
        """What the rank that is judged allocates and frees."""
        raise NotImplementedError

    @property
    def replayed(self) -> int:
        """Micro batch at which the stream is replayed."""
        raise NotImplementedError

    @property
    def samples_per_second(self) -> float:
        """Of all devices together."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures rest on, read in real code."""
        raise NotImplementedError

    @property
    def dies(self) -> str | None:
        """Why the real code ends with an error, whatever the memory; None where it runs."""
        return None

    @property
    def peak_words(self) -> str:
        """Where the peak is, as reasons say it behind a size: ` in prefill`; empty where it goes without saying."""
        return ""


def rank(judgement: Judgement) -> tuple[bool, float, int]:
    """Best first: it fits, then samples per second, then memory."""
    return (judgement.verdict != "fits", -judgement.samples_per_second, judgement.expected_bytes)
