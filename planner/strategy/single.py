"""One device, the whole model on it."""

from planner.memory.optimizer import place_clipping, place_state, place_step
from planner.memory.stream import StreamBuilder
from planner.speed.model import OptimizerWork
from planner.strategy.base import (
    Offload,
    RankContext,
    RankPlan,
    autocast_regime,
    keep_gradients,
    place_whole_model,
    place_workspaces,
    whole_parameters,
)
from planner.trace.variant import Regime
from planner.workload import Optimizer, Precision, Stack


class Single:
    """No distribution: torch and accelerate as they are on one device."""

    name = "single"
    title = "single GPU"
    zero_stage: int | None = None
    offloads: tuple[Offload, ...] = (Offload.NONE,)

    def regime(self, precision: Precision, stack: Stack) -> Regime:
        return autocast_regime(precision, stack)

    def refuses(self, context: RankContext) -> str | None:
        return "there is more than one GPU" if context.world_size > 1 else None

    def rank(self, context: RankContext) -> RankPlan:
        builder = StreamBuilder(context.trace, context.accumulation_steps)
        work = place_replica(builder, context)
        return RankPlan(stream=builder.build(), optimizer_work=work)


def place_replica(builder: StreamBuilder, context: RankContext) -> OptimizerWork:
    """A whole model with whole gradients and optimizer state."""
    dtype = autocast_regime(context.precision, context.stack).weights
    place_whole_model(builder, dtype)
    place_workspaces(builder, context.capability)
    tensors = whole_parameters(context.trace, dtype)
    for iteration in range(len(builder.steps)):
        if context.clipping:
            place_clipping(builder, iteration, tensors)
        if iteration == 0:
            place_state(builder, context.optimizer, tensors)
        place_step(builder, iteration, context.optimizer, tensors)
    keep_gradients(builder, context.trace.parameters)
    return optimizer_work(
        context.optimizer,
        sum(tensor.numel for tensor in tensors),
        tensors[0].nbytes // max(1, tensors[0].numel) if tensors else 4,
    )


_TENSORS_TOUCHED = {Optimizer.SGD: 3}
"""Parameter-sized reads and writes of one step: Adam reads four tensors and writes three."""


def optimizer_work(optimizer: Optimizer, elements: int, element_bytes: int, *, on_host: bool = False) -> OptimizerWork:
    """Memory traffic of one optimizer step."""
    touched = _TENSORS_TOUCHED.get(optimizer, 7)
    return OptimizerWork(
        parameter_bytes_read_written=touched * elements * element_bytes, on_host=on_host, elements=elements
    )
