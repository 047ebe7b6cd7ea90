"""What Accelerate asks of its process, where the planned devices are on meta."""

import functools
import inspect
from typing import Any


def outputs_kept(accelerator: Any) -> None:
    """accelerate accelerator.py: prepare_model converts outputs to fp32 only where it opens autocast."""
    accelerator.convert_outputs_to_fp32 = lambda forward: forward


def planned_not_asked_for(state: Any) -> None:
    """accelerate.state: `cpu=True` (`--use_cpu`) puts a model on the host, which planned CPUs have on meta already."""
    for kind in (state.PartialState, state.AcceleratorState):
        kind.__init__ = _without_cpu(kind.__init__)


def _without_cpu(init: Any) -> Any:
    names = list(inspect.signature(init).parameters)

    @functools.wraps(init)
    def made(*args: Any, **kwargs: Any) -> None:
        given = dict(zip(names, args, strict=False))
        if "cpu" in given:
            args = tuple(False if name == "cpu" else value for name, value in given.items())
        init(*args, **{key: value for key, value in kwargs.items() if key != "cpu"})

    return made
