"""Lets Accelerate run FSDP and DeepSpeed on CPU processes joined by gloo, which it offers on devices only.

For tests and for trying a job without a GPU; active where `names.CPU_RANKS` says so, and with
`ACCELERATE_TORCH_DEVICE=cpu` while `ACCELERATE_USE_CPU` is unset (with that one FSDP2 would silently become DDP).
"""

import functools
import os
from typing import Any

from gpu_plan.executor.runner.imports import PostImport


def install(imports: PostImport) -> None:
    """Before the script runs."""
    imports.when("accelerate.state", _accelerate)
    imports.when("torch", _torch)
    imports.when("deepspeed.comm.torch", _deepspeed)
    imports.when("transformers.utils.import_utils", _transformers)


def _accelerate(module: Any) -> None:
    """PartialState finds no backend for a rank without a device: gloo it is, and ranks as on GPUs.

    A script that asks for the host itself (`use_cpu=True`, `cpu=True`) would get ranks of a kind (MULTI_CPU) that
    Accelerate shards nothing over; their device is the environment's in either case.
    """
    original = module.PartialState._prepare_backend

    @functools.wraps(original)
    def prepare_backend(self: Any, *args: Any, **kwargs: Any) -> Any:
        backend, kind = original(self, *args, **kwargs)
        if kind == module.DistributedType.NO and "LOCAL_RANK" in os.environ:
            return "gloo", module.DistributedType.MULTI_GPU
        return backend, kind

    made = module.PartialState.__init__

    @functools.wraps(made)
    def init(self: Any, cpu: bool = False, **kwargs: Any) -> None:
        made(self, cpu=False, **kwargs)

    module.PartialState._prepare_backend, module.PartialState.__init__ = prepare_backend, init


def _torch(torch: Any) -> None:
    """FSDP2's offload pins what it keeps on the host, for which torch wants a device."""

    def pin_memory(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self

    torch.Tensor.pin_memory = pin_memory


def _deepspeed(module: Any) -> None:
    """The shared-memory communication would be compiled in every run, for 40 seconds; gloo does without."""
    module.build_shm_op = lambda: None


def _transformers(module: Any) -> None:
    """TrainingArguments takes bf16 on a CPU with `use_cpu` only, with which Accelerate joins no such ranks."""
    module.is_torch_bf16_gpu_available = lambda: True
