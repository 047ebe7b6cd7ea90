"""What a script is to run as; what is not known is None, and then every way is thought of."""

from dataclasses import dataclass

from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.strategy.traits import Fault, Traits
from gpu_plan.planner.workload.precisions import stored_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The planned job, as far as a script's faults depend on it."""

    world_size: int | None = None
    strategy: str | None = None
    precision: str | None = None

    @property
    def several_ranks(self) -> bool:
        """Whether more than one rank may run it."""
        return self.world_size != 1

    @property
    def scales_loss(self) -> bool | None:
        """Whether gradients are scaled until they are unscaled for clipping."""
        return None if self.precision is None else stored_precision(self.precision).scales_loss

    @property
    def shards_model(self) -> bool | None:
        """Whether a rank holds only a part of the parameters."""
        return None if self.strategy is None else self._traits is not None and self._traits.shards_model

    def breaks_on(self, fault: Fault) -> bool:
        """Whether a script with this fault fails under the strategy; False where that is not known."""
        return self._traits is not None and fault in self._traits.faults

    @property
    def _traits(self) -> Traits | None:
        """None as well for inference's own ways to spread a model."""
        return known_traits(self.strategy)


def intent_of(saved: SavedPlan) -> Intent:
    """What `saved` plans."""
    gpus = saved.cluster.get("gpus")
    strategy = saved.plan.strategy
    return Intent(
        world_size=gpus if isinstance(gpus, int) else None, strategy=strategy.name, precision=strategy.precision
    )
