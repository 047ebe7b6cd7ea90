"""What ZeRO-3's hooks go by of a trace: traces that are alike in it are walked along once.

Micro batches that are traced apart, other kernels of attention and other ways to compute the loss leave the order of
modules as it is: where it passes among all events, how many kernels lie between, and sizes of what is computed are
nothing to the hooks.
"""

from hashlib import blake2b
from weakref import WeakValueDictionary

import numpy as np

from gpu_plan.planner.memory.stream.traced import gradient_positions, marks
from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.zero.stage3.hooks.script import Script
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_parameters
from gpu_plan.planner.strategy.zero.stage3.partition import holders
from gpu_plan.planner.strategy.zero.stage3.swap import SwapPool
from gpu_plan.planner.strategy.zero.stage3.views import (
    lookup_modules,
    module_events,
    packed_in_graph,
    read_parameters,
    recorded_exits,
    viewed_parameters,
)
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapping:
    """A walk through swap buffers: its script, or with how many it would have gone on, and the buffers' last state."""

    script: Script | None
    needed: int | None
    pool: SwapPool


class Scripts(dict[object, Script]):
    """Those of traces that are alike, by all else that they depend on; whoever makes one adds it."""

    def __init__(self) -> None:
        super().__init__()
        self.swapping: dict[object, Swapping] = {}
        """Those of partitions that pass through swap buffers, which are anew for each walk."""


_CARRIED_OUT = 4
"""Two counts of ranks, or two limits: with each script stands what its ranks have in common."""
_KNOWN: WeakValueDictionary[bytes, Scripts] = WeakValueDictionary()
"""By structure, as long as there is one of the traces."""


@of_trace
def scripts(trace: StepTrace) -> Scripts:
    """Those of a trace and of all that are like it."""
    return _KNOWN.setdefault(structure(trace), Scripts())


@of_trace
def carried_out(_: StepTrace) -> Recent[Script]:
    """Scripts in which a trace's own points stand, as so many ranks carry them out; whoever makes one adds it. They are
    made of those of `scripts` in milliseconds, and take megabytes: other counts of ranks let go of them."""
    return Recent(_CARRIED_OUT)


@of_trace
def kernels(trace: StepTrace) -> IntArray:
    """Kernels launched up to each event of a pass."""
    return np.cumsum(trace.kind == Kind.OPERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Events of modules and gradients, in their order [events]."""

    kinds: list[int]
    subjects: list[int]
    tells: list[bool]
    """What the place of an event says: of a gradient that it is complete, of a module's end that autograd has recorded
    it, of the end of its backward that it is not what runs backward last."""
    recomputed: list[bool]
    """Whether forward has ended before."""
    bound: int
    """How many come before the pass's outputs take the place of those before."""


@of_trace
def seen(trace: StepTrace) -> Seen:
    """What hooks see of a trace."""
    places = module_events(trace)
    kind, subject = trace.kind[places], trace.subject[places]
    last_entered = int(np.flatnonzero(trace.kind == Kind.BACKWARD_ENTER)[-1:].sum())
    complete, recorded = gradient_positions(trace), recorded_exits(trace)
    tells = np.where(
        kind == Kind.EXIT, np.isin(places, np.asarray(sorted(recorded), dtype=np.int64)), places < last_entered
    )
    gradients = np.flatnonzero(kind == Kind.GRADIENT)
    tells[gradients] = [complete[int(subject[at])] == places[at] for at in gradients]
    return Seen(
        kinds=kind.tolist(),
        subjects=subject.tolist(),
        tells=tells.tolist(),
        recomputed=(places > marks(trace)[Mark.BACKWARD]).tolist(),
        bound=int(np.searchsorted(places, marks(trace)[Mark.OUTPUTS_BOUND], side="right")),
    )


def structure(trace: StepTrace) -> bytes:
    """A digest of what a walk reads: events of modules and gradients, who holds what."""
    events = seen(trace)
    frozen = [parameter.module for parameter in trace.parameters if not parameter.trainable]
    facts = (
        events.bound,
        [parameter.trainable for parameter in trace.parameters],
        sorted(holders(trace).items()),
        sorted(viewed_parameters(trace)),
        sorted(packed_in_graph(trace)),
        sorted(read_parameters(trace).items()),
        sorted(lookup_modules(trace)),
        sorted(leaf_parameters(trace).items()),
        (frozen, trace.modules) if frozen else (),
    )
    digest = blake2b(repr(facts).encode(), digest_size=20)
    for numbers in (events.kinds, events.subjects, events.tells, events.recomputed):
        digest.update(np.ascontiguousarray(numbers, dtype=np.int64).tobytes())
    return digest.digest()
