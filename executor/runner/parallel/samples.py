"""Which rank sees which samples: a group of ranks computes one copy of the model, on the same samples.

Accelerate's data loaders and the Trainer's share out by the mesh themselves (accelerate data_loader.py:
prepare_data_loader), but for the one that dispatches, and schedules count all ranks (accelerate scheduler.py: step);
torch's DistributedSampler counts all ranks unless it is told otherwise.
"""

import functools
import inspect
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_LOOKS = 2
"""Training calls of a model in which a group compares its samples."""


class SampleGroups(Protocol):
    """Which ranks see the same samples."""

    @property
    def world_size(self) -> int: ...

    @property
    def data_parallel(self) -> int:
        """Groups that see samples of their own."""
        ...

    def group_of(self, rank: int) -> int:
        """Which of the groups a rank is in."""
        ...


def share_out(module: Any, degrees: SampleGroups) -> None:
    """After `torch.utils.data.distributed` has been imported: samples are shared out among groups of ranks."""
    kind = module.DistributedSampler
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, num_replicas: Any = None, rank: Any = None, *args: Any, **kwargs: Any) -> None:
        if num_replicas in (None, degrees.world_size):
            num_replicas = degrees.data_parallel
            rank = degrees.group_of(_rank() if rank is None else rank)
        original(self, dataset, num_replicas, rank, *args, **kwargs)

    kind.__init__ = init


def read_by_each(module: Any, degrees: SampleGroups, say: Callable[[str], None]) -> None:
    """After `accelerate.data_loader` has been imported: no loader gives several groups the same samples.

    accelerate 1.15 data_loader.py: DataLoaderDispatcher._fetch_batches repeats one batch for every rank as soon as the
    mesh has tensor parallel ranks, whatever else it has, and data sets that are iterated are dispatched unless they are
    told otherwise; one that splits its batches would cut a group's samples apart.
    """
    original, asked = module.prepare_data_loader, inspect.signature(module.prepare_data_loader)

    @functools.wraps(original)
    def prepare_data_loader(*args: Any, **kwargs: Any) -> Any:
        given = asked.bind(*args, **kwargs)
        dispatched = given.arguments.get("dispatch_batches")
        several = degrees.data_parallel > 1
        if dispatched and (several or given.arguments.get("split_batches")):
            raise RuntimeError(
                "dispatch_batches=True is not for a model that the plan has spread over groups of ranks: Accelerate"
                " would give every group the same samples, or split one group's; leave it out, or plan without --tp"
            )
        if dispatched is None and several:
            loader = given.arguments["dataloader"]
            if isinstance(loader.dataset, module.IterableDataset):
                say("each rank reads the data set itself: dispatched batches would be the same for every group")
            given.arguments["dispatch_batches"] = False
        return original(*given.args, **given.kwargs)

    module.prepare_data_loader = prepare_data_loader


def count_groups(module: Any, degrees: SampleGroups) -> None:
    """After `accelerate.scheduler` has been imported: a schedule goes on once for each batch of a step, of which there
    is one for each group, as under so many data parallel ranks."""

    class Groups:
        """What `AcceleratedScheduler.step` asks of `AcceleratorState`."""

        num_processes = degrees.data_parallel

    module.AcceleratorState = Groups


def refuse_copies(module: Any) -> None:
    """After `torch.nn.parallel.distributed` has been imported: DDP would average what ranks hold of different parts."""
    kind = module.DistributedDataParallel
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        if any(hasattr(each, "device_mesh") for each in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not for a model that the plan has spread over the ranks: leave it as it is,"
                " or plan without --tp and --ep"
            )
        original(self, module, *args, **kwargs)

    kind.__init__ = init


def same_in_group(model: Any) -> None:
    """RuntimeError in the first training calls in which ranks of a group see different samples: what they add up would
    belong to none of them."""
    looks: list[None] = []

    def look(module: Any, args: Any, kwargs: Any) -> None:
        import torch

        if len(looks) >= _LOOKS or not module.training or not torch.is_grad_enabled():
            return
        looks.append(None)
        meshes = getattr(module, "_mesh_manager", None)
        if meshes is None:
            return
        import torch.distributed as dist

        group = meshes.get_mesh("tp").get_group()
        ours = digest([*args, *(kwargs[name] for name in sorted(kwargs))])
        seen: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(seen, ours, group=group)
        if len(set(seen)) > 1:
            raise RuntimeError(
                "the ranks of a tensor parallel group see different samples: share the data out by the data parallel"
                " rank alone (torch's DistributedSampler does), and seed what shuffles it alike on every rank"
            )

    model.register_forward_pre_hook(look, with_kwargs=True)


def digest(values: Any) -> int:
    """Of the integer tensors among a call's arguments: token ids, labels, masks."""
    found = 0
    for value in values.values() if isinstance(values, Mapping) else values:
        if isinstance(value, (list, tuple, Mapping)):
            found = zlib.crc32(str(digest(value)).encode(), found)
        elif hasattr(value, "is_floating_point") and not value.is_floating_point():
            found = zlib.crc32(value.detach().cpu().contiguous().numpy().tobytes(), found)
    return found


def _rank() -> int:
    import torch.distributed as dist

    return int(dist.get_rank())


_REPLICAS = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"


def count_replicas_once(module: Any) -> None:
    """`transformers.trainer`: its Trainer gives Accelerate all groups as `dp_shard_size`, HSDP's replicas among them
    (create_accelerator_and_postprocess), beside which a ParallelismConfig takes the replicas from the environment
    again: more ranks than there are."""
    make = module.Trainer.create_accelerator_and_postprocess

    def counted(self: Any) -> Any:
        before = os.environ.pop(_REPLICAS, None)
        try:
            return make(self)
        finally:
            if before is not None:
                os.environ[_REPLICAS] = before

    module.Trainer.create_accelerator_and_postprocess = counted
