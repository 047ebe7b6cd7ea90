"""How a script's own FSDP shards and in which types it computes, as its calls say."""

from dataclasses import dataclass, field
from typing import Any

from gpu_plan.planner.capture.request import ShardingFacts
from gpu_plan.planner.errors import InputError


@dataclass(frozen=True, slots=True)
class Types:
    """A policy of mixed precision, FSDP2's MixedPrecisionPolicy or FSDP1's MixedPrecision; torch.dtype or None each."""

    computed: Any = None
    reduced: Any = None
    buffers: Any = None


@dataclass(slots=True)
class Sharding:
    """Of one script; filled as it wraps its modules."""

    types: list[Types] = field(default_factory=list)
    offloaded: bool = False
    """Whether parameters, gradients and optimizer state stay on the host."""
    kept: bool = False
    """Whether a module other than the root keeps its gathered parameters from forward to backward."""
    replicas: int = 0
    """Copies of the sharded whole, where a mesh of two dimensions says so."""
    asked: str = ""
    """What wraps the model where Accelerate is asked to do it by the script itself; empty where it is not."""

    def note(self, policy: Any) -> None:
        """The policy of one wrapped module."""
        self.types.append(
            Types(*(getattr(policy, name, None) for name in ("param_dtype", "reduce_dtype", "buffer_dtype")))
        )

    @property
    def computed(self) -> Any:
        """The type in which all wrapped modules compute; None where that is their parameters' own.

        InputError where they differ: no plan mixes them.
        """
        found = {one.computed for one in self.types}
        if len(found) > 1:
            names = ", ".join(sorted(str(one or "their own").removeprefix("torch.") for one in found))
            raise InputError(f"its own FSDP computes in several types ({names}), of which no plan is made")
        return next(iter(found), None)

    def facts(self) -> ShardingFacts:
        """For the plan."""
        computed = self.computed
        reduced = {one.reduced or computed for one in self.types}
        last = reduced.pop() if len(reduced) == 1 else None
        return ShardingFacts(
            computed=_name(computed),
            reduced=_name(last),
            offloaded=self.offloaded,
            kept=self.kept,
            replicas=self.replicas,
        )


def _name(dtype: Any) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")


sharding = Sharding()
"""Of the script of this process."""
wrapped: list[str] = []
"""Names of the classes and functions in which it has wrapped a model by itself: DDP's too."""
