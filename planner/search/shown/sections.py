"""Sections of one candidate."""

from collections.abc import Mapping
from dataclasses import field

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.figures import (
    CrowdedFigures,
    MemoryFigures,
    RankFigures,
    SpeedFigures,
    StageFigures,
    TensorLine,
)
from gpu_plan.planner.plan.inference import InferenceFigures, Placement
from gpu_plan.planner.plan.recipe import RecipeFigures, SeveralFigures
from gpu_plan.planner.plan.serving import ServingFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What a plan says beyond its strategy, memory and speed."""

    command: str | None = None
    units: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    placement: Placement | None = None
    inference: InferenceFigures | None = None
    stages: tuple[StageFigures, ...] = ()
    ranks: tuple[RankFigures, ...] = ()
    crowded: CrowdedFigures | None = None
    serving: ServingFigures | None = None
    recipe: RecipeFigures | None = None
    several: SeveralFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Sections of a candidate that is not the best of all."""

    memory: MemoryFigures | None
    """None of one whose model's states alone were counted."""
    speed: SpeedFigures | None
    details: Details
    explain: tuple[TensorLine, ...] | None = None
    """Tensors at the peak, where they were asked for."""
