"""The model that a part belongs to, where the script calls a part.

`vae.encode` calls its encoder, and the decoder lies beside it; `model.forward(...)` passes `__call__` by, and what is
called first is a part of it.
"""

import gc
from types import FrameType

from torch import nn


def running_whole(part: nn.Module, frame: FrameType | None) -> nn.Module:
    """The outermost module around `part` whose forward runs in `frame` or a caller of it, else `part`."""
    whole = part
    while frame is not None:
        own = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(own, nn.Module) and own is not whole and any(whole is module for module in own.modules()):
            whole = own
        frame = frame.f_back
    return whole


def frozen_whole(part: nn.Module) -> nn.Module:
    """The outermost module around `part` in which nothing is trained; itself where it is trained or stands alone."""
    if _is_trained(part):
        return part
    while True:
        around = next((parent for parent in _parents(part) if not _is_trained(parent)), None)
        if around is None:
            return part
        part = around


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _parents(part: nn.Module) -> list[nn.Module]:
    """Modules that have it as a child. torch/nn/modules/module.py: children stand in the dictionary `_modules`."""
    children = [found for found in gc.get_referrers(part) if isinstance(found, dict)]
    owners = [
        own
        for child in children
        for own in gc.get_referrers(child)
        if isinstance(own, dict) and own.get("_modules") is child
    ]
    return [
        module
        for own in owners
        for module in gc.get_referrers(own)
        if isinstance(module, nn.Module) and module.__dict__ is own
    ]
