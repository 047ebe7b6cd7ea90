"""Two iterations under real ZeRO-3 with its state and weights in swap files, on gloo; what DeepSpeed did is noted.

DeepSpeed's async_io is compiled at first use (minutes; it needs libaio's headers) and kept by torch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.trace.inputs.batch import training_loss
from tests.support.cpu_reference import real_twin
from tests.support.ranks.case import RankCase
from tests.support.ranks.zero_loop import ITERATIONS, configuration, import_deepspeed, prepared

_PARAMETERS = {
    "zero.max_in_cpu": "max_in_cpu",
    "zero.param_buffer_count": "buffer_count",
    "zero.param_buffer_size": "buffer_size",
}


def swapped_configuration(case: RankCase, folder: Path) -> dict[str, Any]:
    """The case's JSON with both offload tables; nothing is pinned beyond what DeepSpeed always pins."""
    config = configuration(case)
    zero = config["zero_optimization"]
    common = {"nvme_path": str(folder), "pin_memory": False}
    device = case.settings.get("zero.offload_param", "nvme")
    zero["offload_optimizer"] = {"device": "nvme", **common}
    if device != "none":
        sizes = {name: int(case.settings[key]) for key, name in _PARAMETERS.items() if key in case.settings}
        zero["offload_param"] = {"device": device, **common, **(sizes if device == "nvme" else {})}
    config["zero_force_ds_cpu_optimizer"] = False
    return config


def swapped_run(case: RankCase, meta: nn.Module, inputs: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What one rank read, kept and wrote; `died` holds the assertion that ended it."""
    deepspeed = import_deepspeed()
    config = swapped_configuration(case, folder)
    with prepared(config):
        model = real_twin(meta, getattr(torch, case.stored), case.attention.value)
    names = {parameter.ds_id: name for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config_params=config)
    seen: dict[str, Any] = {"reads": [], "rests": [], "died": ""}
    swapper = next(iter(model.parameters())).nvme_swapper
    if swapper is not None:
        _note_reads(swapper, names, seen["reads"])
    try:
        for _ in range(ITERATIONS):
            for micro_step in range(case.accumulation):
                outputs = engine(**inputs)
                loss = training_loss(engine.module, outputs)
                engine.set_gradient_accumulation_boundary(is_boundary=micro_step == case.accumulation - 1)
                engine.backward(loss)
            seen["rests"].append(_kept_on_device(engine.optimizer))
            engine.step()
            seen["reads"].append([["step"], False])
    except AssertionError as error:
        seen["died"] = str(error)
        return seen
    seen |= _held(engine.optimizer, swapper)
    rank = torch.distributed.get_rank()
    seen["disk"] = sum(path.stat().st_size for path in folder.rglob(f"rank{rank}/*") if path.is_file())
    return seen


def _note_reads(swapper: Any, names: dict[int, str], reads: list[Any]) -> None:
    real = swapper.swap_in

    def swap_in(params: list[Any], async_op: bool = True, swap_in_buffers: Any = None) -> None:
        real(params, async_op=async_op, swap_in_buffers=swap_in_buffers)
        reads.append([sorted(names[parameter.ds_id] for parameter in params), async_op])

    swapper.swap_in = swap_in


def _kept_on_device(optimizer: Any) -> int:
    """Bytes of fp32 gradients of which a piece has no file."""
    infos = optimizer.optimizer_swapper.swap_params_info.values()
    kept = {
        piece.untyped_storage().data_ptr(): piece.untyped_storage().nbytes()
        for info in infos
        for piece in info.unswapped_gradients.values()
    }
    return sum(kept.values())


def _held(optimizer: Any, swapper: Any) -> dict[str, int]:
    """Bytes of the host's buffers, by what they are for."""
    manager = optimizer.optimizer_swapper.swap_buffer_manager
    reuse = getattr(swapper, "partitioned_swap_buffer", None)
    flat = [buffer for buffer in optimizer.param_groups_fp16_flat_cpu_memory if buffer.numel() > 1]
    apart = [
        parameter.ds_tensor
        for parameter in optimizer.module.parameters()
        if parameter.ds_tensor.final_location is None and optimizer.offload_param
    ]
    small = [tensor for tensor in optimizer.fp32_partitioned_groups_flat if tensor.numel()]
    return {
        "weight buffers": swapper.buffers.nbytes if swapper is not None else 0,
        "reused": reuse.nbytes if reuse is not None else 0,
        "state buffers": sum(buffer.nbytes for buffer in manager.all_buffers),
        "gradients": optimizer.grad_partitions_flat_buffer.nbytes,
        "weights in RAM": sum(buffer.nbytes for buffer in flat),
        "small weights": sum(tensor.nbytes for tensor in apart),
        "small groups": 4 * sum(tensor.nbytes for tensor in small),
    }
