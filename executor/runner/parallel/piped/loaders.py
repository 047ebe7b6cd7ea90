"""Which rank sees which samples: pipelines their own, all ranks of one the same."""

import functools
from typing import Any

from gpu_plan.executor.runner.parallel.piped.layout import Layout


def by_pipeline(module: Any, layout: Layout) -> None:
    """After `accelerate.accelerator` has been imported: its data loaders share out among pipelines, and a model in
    stages is wrapped in nothing more. What is read by one rank and sent to the others goes by ranks: each reads."""
    original = module.prepare_data_loader

    @functools.wraps(original)
    def prepare_data_loader(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        import torch.distributed as dist

        rank = dist.get_rank() if dist.is_initialized() else 0
        kwargs.update(
            num_processes=layout.data_parallel,
            process_index=layout.group_of(rank),
            dispatch_batches=bool(kwargs.get("dispatch_batches")),
            torch_device_mesh=None,
        )
        return original(dataloader, *args, **kwargs)

    module.prepare_data_loader = prepare_data_loader


def refuse_copies(module: Any) -> None:
    """After `torch.nn.parallel.distributed` has been imported: DDP would average what ranks hold of other stages."""
    kind = module.DistributedDataParallel
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(module, "_pipeline", None) is not None:
            raise RuntimeError(
                "DistributedDataParallel is not for a model that the plan has cut into stages: leave it as it is, or"
                " plan without --pp"
            )
        original(self, module, *args, **kwargs)

    kind.__init__ = init
