"""How a model is cut into stages, and which such cuts are tried."""

from typing import Literal

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.traits import Traits
from gpu_plan.planner.workload.training import Workload

STEPS_PER_STAGE = 4
"""Micro batches for each stage of a pipeline where nobody says how many: the bubble is then a fifth at most."""


MOST_UNASKED = 64
"""Ranks of a pipeline that the search tries by itself: beyond that no published run has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages of one copy of the model, and the order in which micro batches go through them."""

    degree: int
    """Ranks with stages."""
    schedule: Schedule
    virtual_stages: int = 1
    """Stages on each rank."""
    split: Literal["even", "balanced"] = "even"
    """Whether each stage has as many layers, or the ends fewer where they take longer."""

    @property
    def stages(self) -> int:
        return self.degree * self.virtual_stages

    @property
    def words(self) -> str:
        """`1f1b`, `interleaved, 2 stages a rank`."""
        more = f", {self.virtual_stages} stages a rank" if self.virtual_stages > 1 else ""
        balanced = ", balanced layers" if self.split == "balanced" else ""
        return f"{self.schedule}{more}{balanced}"


def pipelines(traits: Traits, workload: Workload, cluster: Cluster) -> list[Pipeline]:
    """Those of a strategy: of the degree that was given, or of every one that divides the GPUs; none where it has no
    stages."""
    if not traits.pipeline_parallel:
        return []
    together = (workload.tensor_parallel or 1) if traits.tensor_parallel else 1
    world, given = cluster.world_size // together, workload.pipeline_parallel
    degrees = [given] if given is not None else [n for n in range(2, world + 1) if world % n == 0]
    fitting = [n for n in degrees if (n == world) == (traits.pipeline_parallel == "all")]
    if given is None and workload.strategy is None:
        fitting = [n for n in fitting if n <= MOST_UNASKED]
    return [
        Pipeline(degree=degree, schedule=schedule, virtual_stages=virtual, split=split)
        for degree in fitting
        for schedule, virtual in _schedules(workload)
        for split in _splits(workload, virtual)
    ]


def _splits(workload: Workload, virtual: int) -> list[Literal["even", "balanced"]]:
    """As set, else both; ranks with several stages have as many layers in each."""
    asked = workload.setting("pipeline.split", "")
    if asked == "balanced":
        return ["balanced"]
    return ["even"] if asked or virtual > 1 else ["even", "balanced"]


def _schedules(workload: Workload) -> list[tuple[Schedule, int]]:
    """As given; otherwise torch's usual one, and interleaved, with two stages on each rank where nothing is said."""
    virtual = workload.virtual_stages
    if workload.schedule is not None:
        schedule = Schedule(workload.schedule)
        return [(schedule, virtual or (2 if schedule is Schedule.INTERLEAVED else 1))]
    if virtual is not None and virtual > 1:
        return [(Schedule.INTERLEAVED, virtual)]
    found = [(Schedule.ONE_F_ONE_B, 1)]
    if virtual is None and workload.setting("pipeline.split", "") != "balanced":
        found.append((Schedule.INTERLEAVED, 2))
    return found
