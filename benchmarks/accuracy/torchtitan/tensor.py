"""torchtitan's tensor parallel: sequence parallel between layers, the loss on a rank's own part of the vocabulary.

Mirrored from pytorch/torchtitan torchtitan/models/llama3/infra/parallelize.py: apply_tp, and
torchtitan/distributed/utils.py: get_train_context at d9bdfbb2 (November 2025). Read, not run on several GPUs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from gpu_plan.planner.trace.parallel.tensor import ranks


@contextlib.contextmanager
def as_one_of(degree: int) -> Iterator[None]:
    """Within, this is the first of so many ranks that compute one copy, and the loss is parallel."""
    if degree == 1:
        yield
        return
    with ranks(degree), loss_parallel():
        yield


def apply_tp(model: Any, degree: int) -> None:
    """Leaves the first rank's part of a `TitanModel`, within `as_one_of(degree)`."""
    if degree == 1:
        return
    mesh = init_device_mesh("cpu", (degree,), mesh_dim_names=("tp",))
    ends = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, ends)
    for block in model.layers.values():
        parallelize_module(block, mesh, _layer_plan())


def _layer_plan() -> dict[str, Any]:
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }
