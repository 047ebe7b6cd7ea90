"""What ZeRO-3's hooks go by of a trace: traces that are alike in it are walked along once.

Micro batches that are traced apart, and other ways to compute the loss, leave most of a step as it is; sizes of what
is computed are nothing to the hooks.
"""

from hashlib import blake2b
from weakref import WeakValueDictionary

import numpy as np

from gpu_plan.planner.memory.stream.traced import gradient_positions, marks
from gpu_plan.planner.strategy.zero.stage3.hooks.script import Script
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_parameters
from gpu_plan.planner.strategy.zero.stage3.partition import holders
from gpu_plan.planner.strategy.zero.stage3.views import (
    lookup_modules,
    module_events,
    packed_in_graph,
    read_parameters,
    recorded_exits,
    viewed_parameters,
)
from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


class Scripts(dict[object, tuple[Script, dict[int, Script]]]):
    """Those of traces that are alike, by all else that they depend on, and each as so many ranks carry it out; whoever
    makes one adds it."""


_KNOWN: WeakValueDictionary[bytes, Scripts] = WeakValueDictionary()
"""By structure, as long as there is one of the traces."""


@of_trace
def scripts(trace: StepTrace) -> Scripts:
    """Those of a trace and of all that are like it."""
    return _KNOWN.setdefault(structure(trace), Scripts())


@of_trace
def kernels(trace: StepTrace) -> IntArray:
    """Kernels launched up to each event of a pass."""
    return np.cumsum(trace.kind == Kind.OPERATOR)


def structure(trace: StepTrace) -> bytes:
    """A digest of what a walk reads: events of modules and gradients, kernels between them, who holds what."""
    places = module_events(trace)
    frozen = [parameter.module for parameter in trace.parameters if not parameter.trainable]
    facts = (
        trace.num_events,
        sorted(marks(trace).items()),
        sorted(gradient_positions(trace).items()),
        np.flatnonzero(trace.kind == Kind.BACKWARD_ENTER)[-1:].tolist(),
        kernels(trace)[-1:].tolist(),
        [parameter.trainable for parameter in trace.parameters],
        sorted(holders(trace).items()),
        sorted(viewed_parameters(trace)),
        sorted(packed_in_graph(trace)),
        sorted(read_parameters(trace).items()),
        sorted(lookup_modules(trace)),
        sorted(leaf_parameters(trace).items()),
        sorted(recorded_exits(trace)),
        (frozen, trace.modules) if frozen else (),
    )
    digest = blake2b(repr(facts).encode(), digest_size=20)
    for numbers in (places, trace.kind[places], trace.subject[places], kernels(trace)[places]):
        digest.update(np.ascontiguousarray(numbers, dtype=np.int64).tobytes())
    return digest.digest()
