"""Hooks on DeepSpeed's engine: it owns accumulation and steps, and calls an inner optimizer for each of its groups."""

import functools
from typing import Any

from gpu_plan.executor.runner.hooks.clipping import note_engine
from gpu_plan.executor.runner.hooks.pytorch import scalar
from gpu_plan.executor.runner.recorder import Recorder


def install(module: Any, recorder: Recorder) -> None:
    """After `deepspeed.runtime.engine` has been imported."""
    engine = module.DeepSpeedEngine
    engine.backward = _backward(engine.backward, recorder)
    engine.step = _step(engine.step, recorder)


def _backward(original: Any, recorder: Recorder) -> Any:
    @functools.wraps(original)
    def backward(self: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        divided = kwargs.get("scale_wrt_gas", args[1] if len(args) > 1 else True)
        scale = 1.0 / self.gradient_accumulation_steps() if divided else 1.0
        recorder.guard("DeepSpeed's backward", recorder.backward_begins, scalar(loss), scale)
        try:
            return original(self, loss, *args, **kwargs)
        finally:
            recorder.guard("DeepSpeed's backward", recorder.backward_ends)

    return backward


def _step(original: Any, recorder: Recorder) -> Any:
    """One call per micro batch; the weights change where `global_steps` does and nothing overflowed."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        managed = getattr(self, "managed_gradient_accumulation", None)
        if (managed is None or managed()) and not self.is_gradient_accumulation_boundary():
            return original(self, *args, **kwargs)
        steps, skipped = self.global_steps, self.skipped_steps
        recorder.guard("DeepSpeed's step", recorder.optimizer_begins)
        found = original(self, *args, **kwargs)
        recorder.guard("DeepSpeed's clipping", note_engine, recorder, self)
        applied = self.global_steps > steps and self.skipped_steps == skipped
        recorder.guard("DeepSpeed's step", recorder.engine_step_ends, self, applied)
        return found

    return step
