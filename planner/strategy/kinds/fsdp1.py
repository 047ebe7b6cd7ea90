"""FSDP1, FULL_SHARD: every block's parameters as one flat parameter, gathered whole and freed again."""

from typing import TYPE_CHECKING

from gpu_plan.planner.strategy.traits import (
    Checkpoint,
    Compiled,
    Engine,
    Fault,
    Form,
    HasTraits,
    Host,
    Ladder,
    Offload,
    Searched,
    Traits,
)
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack

if TYPE_CHECKING:
    from gpu_plan.planner.strategy.base import RankContext, RankPlan
    from gpu_plan.planner.trace.variant import Regime

TRAITS = Traits(
    name="fsdp1",
    title="FSDP1",
    place=3,
    moving_parts=4,
    engine=Engine.FSDP1,
    stage=3,
    one_device=False,
    replicates=False,
    cpu_ranks=False,
    offloads=(Offload.NONE, Offload.ALL),
    # _flat_param.py: prepare_gradient_for_backward tells the two apart by their device.
    fails_offloaded_on_cpu="torch adds a gradient on the host to the next step's where ranks are there too",
    settings=frozenset({"dtype.reduce", "fsdp.sync_each_batch", "fsdp.use_orig_params"}),
    flags=(
        *("--use_fsdp", "--fsdp_version", "1", "--fsdp_sharding_strategy", "FULL_SHARD"),
        *("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "--fsdp_backward_prefetch", "BACKWARD_PRE"),
        *("--fsdp_use_orig_params", "true"),
    ),
    packages=(),
    wrapped_by=frozenset({"FullyShardedDataParallel", "FSDP"}),
    seen_as=("FullyShardedDataParallel FULL_SHARD", "FullyShardedDataParallel SHARD_GRAD_OP"),
    # An older form of what the search tries anyway.
    searched=Searched(over=None, alone=()),
    compiled=Compiled(
        regions="blocks",
        note="FSDP's hooks cut the model's graph: blocks are counted compiled, norm, head and loss as written",
        note_holds_regionally=False,
    ),
    host=Host(loads="unknown", saves="shards"),
    checkpoint=Checkpoint(form=Form.FSDP1_SHARDS, made_from=()),
    ladder=Ladder(then=(), offloads=(Offload.ALL,)),
    faults=frozenset({Fault.COMPILED_FIRST, Fault.PREPARED_APART}),
)


class FullyShardedDataParallel1(HasTraits):
    """torch's older FSDP as accelerate sets it up."""

    traits = TRAITS
    broadcast_waits = False
    """Whether NCCL's process group records its stream on what it is given, as it did before torch 2.8."""
    checkpointed_outside = False
    """Whether checkpoints stand around the wrapped modules, as transformers before 4.52 had them; inside since."""

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.fsdp1.rank import flat_regime

        return flat_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp1.rank import refuses_flat

        return refuses_flat(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.fsdp1.rank import flat_rank

        return flat_rank(
            context,
            self.ignored(context),
            broadcast_waits=self.broadcast_waits,
            checkpointed_outside=self.checkpointed_outside,
        )

    def ignored(self, context: "RankContext") -> frozenset[int]:
        """Indices of parameters in `ignored_modules`: whole on every rank, their gradients are not FSDP's affair."""
        return frozenset()


STRATEGY = FullyShardedDataParallel1()
