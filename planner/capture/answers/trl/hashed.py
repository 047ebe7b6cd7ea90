"""TRL's hash of a model, of which the values are not there: by names, shapes and types.

trl 1.16: trainer/utils.py (hash_module: every weight is brought to the host and read), trainer/dpo_trainer.py
and trainer/kto_trainer.py (what they computed before the first step is kept by it).
"""

import hashlib
from typing import Any

from gpu_plan.planner.capture.imports import when_imported

_MODULE = "trl.trainer.utils"


def hashed_by_shape() -> None:
    """For the rest of the process, where TRL is imported now or later."""
    when_imported(_MODULE, _take)


def _take(module: Any) -> None:
    module.hash_module = _by_shape


def _by_shape(module: Any) -> str:
    told = [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in sorted(module.state_dict().items())]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
