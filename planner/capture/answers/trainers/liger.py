"""Liger's kernels where a Trainer puts them: `use_liger_kernel`, with mirrors of them in the place of Triton's.

transformers integrations/liger.py: apply_liger_kernel, which trainer.py calls when training starts. The package itself
need not be installed: it is on the machine that trains.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.kernels.liger import trained_with


def liger_mirrored(device: PlannedDevice, stack: contextlib.ExitStack) -> Callable[[Any], None]:
    """What to do with `transformers.trainer` once it is imported; `stack` takes the kernels out again."""

    def apply(model: Any, config: dict[str, Any] | None) -> None:
        if device.capability_major is None:
            raise UsageError("use_liger_kernel: Liger's kernels are Triton's, which need a GPU")
        # A script without a Trainer has no part in what these import.
        from transformers.trainer_utils import unwrap_peft_model

        from gpu_plan.planner.trace.kernels.liger.loss import LigerDevice
        from gpu_plan.planner.trace.kernels.liger.replace import liger_kernels

        base: Any = unwrap_peft_model(model)
        model_type = getattr(getattr(base, "config", None), "model_type", None)
        fused = trained_with(config or {}, model_type, type(base).__name__)
        if fused:
            capability = (device.capability_major, device.capability_minor)
            planned = LigerDevice(capability=capability, sm_count=device.sm_count)
            stack.enter_context(liger_kernels(base, fused, planned))

    def take(module: Any) -> None:
        module.apply_liger_kernel = apply

    return take
