"""What a model stores: its parameters and buffers, named and counted, and in the types that a regime keeps them in."""

import torch
from torch import nn

from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.trace.parallel.tensor import TIED_APART, holds_experts, is_split, local_tensor
from gpu_plan.planner.trace.setup.adapters import quantisation_scales, show_adapters
from gpu_plan.planner.trace.variant import Regime


def parameter_infos(model: nn.Module) -> list[ParameterInfo]:
    """Parameters in `model.parameters()` order, tied ones once; of each, what this rank holds."""
    return [
        ParameterInfo(
            name=name,
            shape=tuple(local_tensor(parameter).shape),
            dtype=str(parameter.dtype).removeprefix("torch."),
            trainable=parameter.requires_grad,
            module=name.rpartition(".")[0],
            split=is_split(parameter),
            experts=holds_experts(parameter),
            tied_to=getattr(model, TIED_APART, {}).get(name, ""),
        )
        for name, parameter in model.named_parameters()
    ]


def buffer_sizes(model: nn.Module) -> list[tuple[str, int]]:
    """Name and bytes of every buffer's storage."""
    seen: set[int] = set()
    sizes = []
    for name, buffer in model.named_buffers():
        storage = buffer.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            sizes.append((name, storage.nbytes()))
    return sizes


def cast(model: nn.Module, regime: Regime) -> None:
    """Brings parameters, and buffers that follow them, to the types of `regime`, in place."""
    parts: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        now = str(parameter.dtype).removeprefix("torch.")
        wanted = regime.dtype_of(now, trainable=parameter.requires_grad, name=name, dims=parameter.dim())
        if not parameter.is_floating_point() or now == wanted:
            continue
        if is_split(parameter):
            # The rank's own tensor is an attribute of a DTensor, which `data` leaves as it is.
            other = parameter.detach().to(getattr(torch, wanted))
            parts[id(parameter)] = nn.Parameter(other, requires_grad=parameter.requires_grad)
        else:
            parameter.data = parameter.data.to(getattr(torch, wanted))
    for module in model.modules() if parts else ():
        module._parameters.update({key: parts.get(id(each), each) for key, each in module._parameters.items()})
    if regime.buffers_follow:
        weights = getattr(torch, regime.weights)
        scales = quantisation_scales(model)
        for buffer in model.buffers():
            if buffer.is_floating_point() and id(buffer) not in scales:
                buffer.data = buffer.data.to(weights)
    show_adapters(model, regime.adapters_seen)
