"""The whole model's weights on the first rank's host, put together from every stage: for files that others read."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def whole_weights(model: Any, group: Any, device: torch.device) -> dict[str, Tensor]:
    """By name, on the CPU of the pipeline's first rank, and nothing on the others; every rank of the job calls it.

    One tensor after the other, so that no device holds more than one of another stage.
    """
    own = {name: _full(each) for name, each in model.state_dict().items()}
    place, found = dist.get_rank(group), dict[str, Tensor]()
    for stage in range(dist.get_world_size(group)):
        told: list[Any] = [[(name, tuple(each.shape), each.dtype) for name, each in own.items()]]
        dist.broadcast_object_list(told, group=group, group_src=stage)
        for name, shape, dtype in told[0]:
            sent = own[name].to(device) if stage == place else torch.empty(shape, dtype=dtype, device=device)
            dist.broadcast(sent, group=group, group_src=stage)
            if place == 0:
                found[name] = sent.detach().cpu()
    return found


def _full(each: Tensor) -> Tensor:
    whole: Tensor = each.full_tensor() if hasattr(each, "full_tensor") else each
    return whole.detach().contiguous()
