"""Which rank holds which layers, and how micro batches go through them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gpu_plan.executor.runner.parallel.degrees import told

VARIABLE = "GPU_PLAN_STAGES"
"""JSON object with the fields of `Layout`; unset where the plan has no stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A plan in stages. Ranks are numbered (stage, pipeline, place among those that compute a stage together), the last
    fastest: as init_device_mesh does."""

    schedule: str
    """Class of torch.distributed.pipelining."""
    ranks: int
    """Of one pipeline."""
    pipelines: int
    """With samples of their own."""
    together: int = 1
    """Ranks that compute each stage together."""
    micro_batches: int
    """Into which the batch of one training call is cut."""
    stages: tuple[tuple[int, int], ...]
    """First layer and the one behind the last, of every stage."""
    data: str = "whole"
    """How a stage stands on the pipelines' ranks: `whole`, `averaged` (DDP) or `sharded` (FSDP2)."""
    compute: str = ""
    """The 16-bit type in which sharded weights are gathered; empty: their own."""

    @property
    def layers(self) -> int:
        return self.stages[-1][1]

    @property
    def local(self) -> int:
        """Stages on each rank."""
        return len(self.stages) // self.ranks

    @property
    def world_size(self) -> int:
        return self.ranks * self.pipelines * self.together

    @property
    def data_parallel(self) -> int:
        """Groups of ranks that see samples of their own."""
        return self.pipelines

    def group_of(self, rank: int) -> int:
        """Which of these a rank is in."""
        return rank // self.together % self.pipelines

    def place_of(self, rank: int) -> int:
        """Where in its pipeline a rank stands, 0 for the first."""
        return rank // (self.pipelines * self.together)

    def fields(self) -> dict[str, object]:
        """Values for JSON."""
        return asdict(self)


def read_layout(environment: Mapping[str, str] | None = None) -> Layout | None:
    """What the launching process says; None where it says nothing. ValueError for anything else than it writes."""
    given = told(VARIABLE, environment)
    if given is None:
        return None
    stages = tuple((int(first), int(end)) for first, end in given.pop("stages"))
    return Layout(stages=stages, **given)
