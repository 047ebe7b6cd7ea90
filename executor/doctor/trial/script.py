"""What a trial launch runs on every rank: `accelerate launch ... executor/doctor/trial/script.py`."""

import dataclasses
import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator

from gpu_plan.executor.current_plan import current_plan
from gpu_plan.executor.doctor.trial import collectives, training
from gpu_plan.executor.doctor.trial.outcome import OUT, RankResult, Speed, Tested
from gpu_plan.planner.workload.precisions import stored_precision

_LARGEST_ON_CPU = 16 * 2**20
_LARGEST_ON_GPU = 256 * 2**20


def main() -> None:
    """Tries everything and writes the rank's result, whatever fails."""
    accelerator = Accelerator()
    plan = current_plan()
    micro_batch = plan.micro_batch_size or 2
    steps = plan.gradient_accumulation_steps or 1
    if accelerator.gradient_accumulation_steps != steps and accelerator.gradient_accumulation_steps == 1:
        accelerator.gradient_accumulation_steps = steps
    tested = list(collectives.tests(accelerator))
    weights = getattr(torch, stored_precision(plan.precision).weights)
    wrapped = ""
    for result, around in training.tests(accelerator, micro_batch, weights):
        tested.append(result)
        wrapped = around
    on_gpu = accelerator.device.type == "cuda"
    speeds = list(collectives.speeds(accelerator, _LARGEST_ON_GPU if on_gpu else _LARGEST_ON_CPU))
    write(accelerator, wrapped, tested, speeds)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def write(accelerator: Accelerator, wrapped: str, tested: list[Tested], speeds: list[Speed]) -> None:
    """The rank's file; ranks that never met have one each as well, by their process."""
    device = accelerator.device
    identity = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else f"process {os.getpid()}"
    backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "none"
    result = RankResult(
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        pid=os.getpid(),
        device=str(device),
        device_id=identity,
        backend=str(backend),
        distributed_type=accelerator.distributed_type.value,
        mixed_precision=accelerator.mixed_precision,
        wrapped=wrapped,
        tests=tuple(tested),
        speeds=tuple(speeds),
    )
    path = Path(os.environ[OUT]) / f"trial-{result.rank}-{result.pid}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(result)))
    part.replace(path)


if __name__ == "__main__":
    main()
