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
        sizes = (layout.ranks, layout.pipelines)
        self._mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=("pp", "dp"))
        self.layout = layout
        self.place = int(self._mesh["pp"].get_local_rank())
        self.pipeline: Any = self._mesh["pp"].get_group()
        """The ranks of this one."""
        self.data: Any = self._mesh["dp"].get_group()
        """Those with the same stages."""

    @property
    def data_mesh(self) -> Any:
        return self._mesh["dp"]

    def ends(self) -> Any:
        """A group of the first and the last rank of this pipeline; every rank of the job calls it."""
        layout, found = self.layout, None
        for number in range(layout.pipelines):
            ranks = [number, (layout.ranks - 1) * layout.pipelines + number]
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
