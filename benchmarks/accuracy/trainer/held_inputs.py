"""What FSDP1 of earlier releases held that today's does not, as a change of the traced step.

transformers before 4.52 called checkpoint around each decoder layer, which under FSDP is the wrapped one
(models/llama/modeling_llama.py: _gradient_checkpointing_func). With reentrant checkpointing FSDP's forward then runs
only in the recomputation, on detached leaves: torch/distributed/fsdp/_runtime_utils.py:
_register_post_backward_reshard_only_hook keeps, for every unit without trained parameters, a hook on the
accumulation node of the layer's input, and _finalize_params drops it when the whole backward pass is over. Until then
that node holds the input and its gradient. Layers have been checkpointed inside the wrapped module since.
"""

from dataclasses import replace

import numpy as np

from gpu_plan.planner.strategy.module_times import module_times
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace


def with_held_inputs(trace: StepTrace) -> StepTrace:
    """The inputs of checkpointed layers and the gradients of these live until backward has ended.

    AssertionError when a layer does not leave exactly one storage behind in each direction.
    """
    held = set(_inputs(trace)) | set(_input_gradients(trace))
    late = np.flatnonzero((trace.kind == Kind.FREE) & np.isin(trace.subject, list(held)))
    rest = np.setdiff1d(np.arange(trace.num_events), late)
    end = int(np.searchsorted(rest, trace.mark_position(Mark.BACKWARD_END)))
    order = np.concatenate([rest[:end], late, rest[end:]])
    return replace(trace, kind=trace.kind[order], subject=trace.subject[order])


def _inputs(trace: StepTrace) -> list[int]:
    """What each layer is given: what the layer before left behind, the first one what the embedding did."""
    times, layout = module_times(trace), trace.layout
    assert layout.input_embedding is not None
    return [
        _left_behind(trace, times.enter[name], times.exit[name])
        for name in (layout.input_embedding, *layout.blocks[:-1])
    ]


def _input_gradients(trace: StepTrace) -> list[int]:
    times = module_times(trace)
    return [_left_behind(trace, times.backward_enter[name], times.backward_exit[name]) for name in trace.layout.blocks]


def _left_behind(trace: StepTrace, first: int, last: int) -> int:
    """The one storage that is made in a span of events and outlives it, parameters' gradients aside."""
    kind, subject = trace.kind[first : last + 1], trace.subject[first : last + 1]
    made: IntArray = np.setdiff1d(subject[kind == Kind.ALLOC], subject[kind == Kind.FREE])
    (left,) = made[trace.tensor_parameter[made] < 0]
    return int(left)
