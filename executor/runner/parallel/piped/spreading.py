"""Ranks of pipelines: their groups, the first one's weights on all, and stages that FSDP2 shards."""

import os
from typing import Any

import torch
import torch.distributed as dist

from gpu_plan.executor.runner.parallel.piped.layout import Layout


class Mesh:
    """This rank's place among the others. Joins the job where the script has not yet."""

    def __init__(self, layout: Layout) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.device = _device()
        if self.device.type != "cpu":
            torch.get_device_module(self.device).set_device(self.device)
        sizes = (layout.ranks, layout.pipelines, layout.together)
        self._mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=("pp", "dp", "tp"))
        self.layout = layout
        self.place = int(self._mesh["pp"].get_local_rank())
        self.data_place = int(self._mesh["dp"].get_local_rank())
        self.pipeline: Any = self._mesh["pp"].get_group()
        """The ranks of this one."""
        self.data: Any = self._mesh["dp"].get_group()
        """Those with the same stages."""

    @property
    def data_mesh(self) -> Any:
        return self._mesh["dp"]

    @property
    def tensor_mesh(self) -> Any:
        """The ranks that compute this rank's stages together."""
        return self._mesh["tp"]

    def ends(self) -> Any:
        """A group of the first and the last rank of this pipeline; every rank of the job calls it."""
        layout, found = self.layout, None
        beside = layout.pipelines * layout.together
        for number in range(beside):
            ranks = [number, (layout.ranks - 1) * beside + number]
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                found = group
        return found


def _device() -> torch.device:
    on_cpu = os.environ.get("GPU_PLAN_CPU_RANKS") == "1" or os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if on_cpu or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def with_first_weights(model: Any, mesh: Mesh) -> None:
    """Gives every rank the first one's values."""
    for each in (*model.parameters(), *model.buffers()):
        sent = each.detach().to(mesh.device)
        dist.broadcast(sent, 0)
        each.data.copy_(sent)


def shared(model: Any, mesh: Mesh) -> None:
    """Leaves of a whole model what this rank computes of it, in place, by the class's own plan (transformers 5.23
    distributed/tensor_parallel.py: apply_tensor_parallelism). RuntimeError for a class that has none."""
    from torch import nn
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    try:
        plan, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.layout.together))
    except ValueError as problem:
        raise RuntimeError(f"{type(model).__name__} cannot be computed by several ranks together: {problem}") from None
    model.to(mesh.device)
    apply_tensor_parallelism(model, mesh.tensor_mesh, plan)
    for owner in model.modules():
        for name, each in owner._parameters.items():
            if each is not None and hasattr(each, "to_local"):
                # A part is a view of the whole, which would stay for it.
                owner._parameters[name] = nn.Parameter(_own(each.detach()), requires_grad=each.requires_grad)


def _own(each: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        each.to_local().clone(),
        each.device_mesh,
        each.placements,
        run_check=False,
        shape=each.shape,
        stride=each.stride(),
    )


def sharded(part: Any, layout: Layout, mesh: Mesh) -> Any:
    """A stage as FSDP2 shards it over the ranks that hold it: the embedding, every layer, norm with head, the rest."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    words: dict[str, Any] = {"mesh": mesh.data_mesh, "reshard_after_forward": False}
    if layout.compute:
        policy = MixedPrecisionPolicy(param_dtype=getattr(torch, layout.compute), reduce_dtype=torch.float32)
        words["mp_policy"] = policy
    model = part.model
    base = getattr(model, model.base_model_prefix)
    if part.stage.is_first:
        fully_shard(model.get_input_embeddings(), **words)
    layers = next(getattr(base, name) for name in ("layers", "h") if hasattr(base, name))
    for index in range(part.stage.first, part.stage.end):
        fully_shard(layers[index], **words)
    if part.stage.is_last:
        norm = next(getattr(base, name) for name in ("norm", "ln_f", "final_layernorm") if hasattr(base, name))
        fully_shard([norm, model.lm_head], **words)
    return fully_shard(part, **words)
