"""One row about speed, in this program's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.speed.model import Layers
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One row in this program's words."""

    source: ModelSource | None
    config: Mapping[str, Any] | None
    """Config where no source has one."""
    cluster: Cluster
    workload: Workload
    strategy: str
    mirrored: Strategy
    """What is estimated: the registry's, or that of the run's own software."""
    checkpointing: Checkpointing
    adapter: Adapter | None
    micro_batch: int
    accumulation_steps: int
    differences: tuple[str, ...]
    layout: Layout | None = None
    """Degrees of a job of Megatron-core; None: the row's class runs."""
    blocking: bool = False
    """Whether the host waited for every launch."""
    layers: Layers | None = None
    """Whose layers ran, where they are not those that are compared with."""

    @property
    def family(self) -> Family:
        layout = self.layout
        return Family(
            strategy=self.mirrored,
            offload=Offload.NONE,
            checkpointing=self.checkpointing,
            tensor_parallel=self.workload.tensor_parallel or 1,
            expert_parallel=self.workload.expert_parallel or 1,
            context_parallel=self.workload.context_parallel or 1,
            layout=layout,
        )

    @property
    def degrees(self) -> str:
        """`TP 8 × PP 4`; empty where nothing but data is shared out."""
        if self.layout is not None:
            return self.layout.words
        return f"TP {self.workload.tensor_parallel}" if (self.workload.tensor_parallel or 1) > 1 else ""
