"""Notes to which norm the script asks for its gradients to be clipped, and to which DeepSpeed's engine clips."""

import functools
import math
from typing import Any

from gpu_plan.executor.runner.recorder import Recorder


def clipping(original: Any, recorder: Recorder, *, method: bool = False) -> Any:
    """`clip_grad_norm_`, torch's or an Accelerator's (`method`), with its norm noted."""

    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        values = args[2 if method else 1 :]
        recorder.guard("clipping", _note, recorder, values[0] if values else kwargs.get("max_norm"))
        return original(*args, **kwargs)

    return clip


def _note(recorder: Recorder, norm: Any) -> None:
    """The Trainer measures the norm by clipping to infinity: that clips nothing."""
    if norm is not None:
        recorder.actual["clipping_asked"] = float(norm) if math.isfinite(float(norm)) else 0.0


def note_engine(recorder: Recorder, engine: Any) -> None:
    """The norm in DeepSpeed's own optimizer: one that was loaded from a checkpoint has that of its making."""
    norm = getattr(engine.optimizer, "clip_grad", None)
    if isinstance(norm, (int, float)):
        recorder.actual["clipping_of_engine"] = float(norm)
