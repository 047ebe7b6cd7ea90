"""Where the user's own code is told that a tensor lies: on the planned GPU or on the host, never on meta.

Code asks before it chooses: `if x.is_cuda`, `torch.autocast(x.device.type)`, weights made later where `p.is_meta`. What
torch and other installed packages ask is answered with the truth: they were never written for a GPU of shapes.
"""

import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_GPU, _HOST = torch.device("cuda", 0), torch.device("cpu")
ANSWERS: dict[Any, Callable[[bool], Any]] = {
    torch.Tensor.device.__get__: lambda placed: _GPU if placed else _HOST,
    torch.Tensor.is_cuda.__get__: lambda placed: placed,
    torch.Tensor.is_cpu.__get__: lambda placed: not placed,
    torch.Tensor.is_meta.__get__: lambda placed: False,
    torch.Tensor.get_device: lambda placed: 0 if placed else -1,
}
"""By what is asked of a tensor on meta; told is whether the script has put anything on the planned device."""
_ON_THE_WAY = ("__torch_function__", "_asked", "_called")
"""Of function modes, through which what is asked comes here."""
_HANDED_ON = ("peft.", "torch.nn.modules.module")
"""Between `model.device` and who asks."""


def users_own() -> bool:
    """Whether the user's own code asks, by itself or through a model's `device` (transformers/modeling_utils.py)."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in _ON_THE_WAY and _name(frame).startswith("gpu_plan."):
        frame = frame.f_back
    while frame is not None and _of_a_model(frame):
        frame = frame.f_back
    return frame is not None and _is_own(frame.f_code.co_filename)


def _of_a_model(frame: FrameType) -> bool:
    name = _name(frame)
    whole = name == "transformers.modeling_utils" and frame.f_code.co_name in ("device", "<genexpr>")
    return whole or name.startswith(_HANDED_ON)


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


@cache
def _is_own(file: str) -> bool:
    """Whether a file is neither installed, nor of the standard library, nor of this package."""
    if file.startswith("<"):
        return False
    return not any(file.startswith(root) for root in _others())


@cache
def _others() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    ours = Path(__file__).parents[3]  # planner: as it is imported, and where its link leads
    roots |= {str(ours), str(ours.resolve())}
    return tuple(f"{root}/" for root in roots) + tuple(f"{Path(root).resolve()}/" for root in roots)
