"""KempnerForge's tensor parallel: sequence parallel between layers, a whole embedding, logits gathered on every rank.

Mirrored from KempnerInstitute/KempnerForge at 5666d0d1, kempnerforge/distributed/tensor_parallel.py:
apply_tensor_parallel, _build_block_tp_plan. Read, not run on several GPUs.
"""

from functools import partial
from typing import Any

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


def apply_tp(model: Any, degree: int) -> None:
    """Leaves the first rank's part of a `ForgeModel`, within `ranks(degree)`."""
    if degree == 1:
        return
    mesh = init_device_mesh("cpu", (degree,), mesh_dim_names=("tp",))
    model.token_embedding.register_forward_hook(partial(_replicated, mesh))
    for block in model.layers.values():
        parallelize_module(block, mesh, _block_plan())
        block.attention.register_forward_hook(partial(_cut, mesh))
        block.mlp.register_forward_hook(partial(_cut, mesh))
    parallelize_module(model, mesh, {"norm": SequenceParallel()})
    gathered = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model.output_head, mesh, {"proj": gathered})


def _block_plan() -> dict[str, Any]:
    columns, rows = {"input_layouts": Shard(1)}, {"output_layouts": Shard(1)}
    return {
        "attention_norm": SequenceParallel(),
        "mlp_norm": SequenceParallel(),
        "attention.q_proj": ColwiseParallel(**columns),
        "attention.k_proj": ColwiseParallel(**columns),
        "attention.v_proj": ColwiseParallel(**columns),
        "attention.o_proj": RowwiseParallel(**rows),
        "mlp.gate_proj": ColwiseParallel(**columns),
        "mlp.up_proj": ColwiseParallel(**columns),
        "mlp.down_proj": RowwiseParallel(**rows),
    }


def _replicated(mesh: Any, module: Any, args: Any, output: Any) -> Any:
    """_wrap_replicate."""
    return DTensor.from_local(output, device_mesh=mesh, placements=[Replicate()])


def _cut(mesh: Any, module: Any, args: Any, output: Any) -> Any:
    """_rewrap_shard1."""
    if isinstance(output, DTensor):
        return output
    return DTensor.from_local(output, device_mesh=mesh, placements=[Shard(1)])
