"""Megatron-FSDP's last rank, from that of whole replicas (`--use-megatron-fsdp`, `optim_grads_params`, one stage).

Read at the commit at which the rows were recorded, 41595d09b5 (April 2026): core/distributed/fsdp/src/megatron_fsdp/
megatron_fsdp.py and param_and_grad_buffer.py, training/checkpointing.py. A layer is a unit; all else is one bucket,
which is gathered at its first use and stays until the step is over. At the logits of the step's first micro batch the
last norm, of that bucket, has all layers gathered again: what is gathered ahead goes up to half of a thousand million
elements (suggested_AG_prefetch_size), all that such models have; later micro batches gather nothing ahead there, for
what is no unit stays in the state PRE_BACKWARD. Adam's states stand from before the first step on, since loading is
prepared (load_checkpoint: generate_state_dict with is_loading) whether there is a checkpoint or not. Then cuBLAS has no
workspace yet for the thread that goes backward.
"""

from math import prod

from benchmarks.accuracy.megatron.jobs import Job, profile, stream
from gpu_plan.planner.memory.profile import Phase
from gpu_plan.planner.trace.events import Category

_HALF, _SHARED = 2, 18
"""Bytes of a parameter in 16 bits, and of what its ranks share out: that, and in fp32 the main parameter, the gradient
and two moments."""
_UNITS = "decoder.layers."


def peak_of(job: Job, replicas: int) -> int:
    """Peak bytes, from the peak of a rank that holds its parameters and gradients whole, which lies at the logits."""
    held = profile(job, 0)
    assert held.phase_of_peak is Phase.FORWARD
    assert job.workspace_bytes is not None
    states = sum(held.at_peak[kind] for kind in (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE))
    sizes = {one.name: prod(one.shape) for one in stream(job, 0)[1].parameters}
    whole = sum(sizes.values())
    others = sum(size for name, size in sizes.items() if not name.startswith(_UNITS))
    own = replicas - states + _SHARED * whole // job.rules.data_parallel
    return max(own + _HALF * whole - job.workspace_bytes, own + _HALF * others)
