"""Models of transformers are spread over the ranks where the script loads or makes them.

What is loaded goes through `from_pretrained(distributed_config=...)`, as a script would write it. What is made from a
configuration is spread in place by the same functions of transformers 5.23 (modeling_utils.py: from_pretrained), with
the weights of the first rank: others may have drawn their own.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.parallel.checkpoints import is_spread
from gpu_plan.executor.runner.parallel.degrees import Degrees
from gpu_plan.executor.runner.parallel.making import Making
from gpu_plan.executor.runner.parallel.samples import same_in_group

_OWN = ("distributed_config", "tp_plan", "tp_size", "device_mesh")
"""Arguments with which a script spreads its model itself."""
_WITHOUT_PLAN = "was requested, but"


def spread_models(module: Any, degrees: Degrees, say: Callable[[str], None]) -> None:
    """After `transformers.modeling_utils` has been imported."""
    kind, making = module.PreTrainedModel, Making()
    kind.from_pretrained = classmethod(_from_pretrained(kind.from_pretrained.__func__, making, degrees, say))
    making.follow(kind, lambda model: _spread(module, model, degrees, say))


def _config(degrees: Degrees) -> Any:
    """The planned degrees, as transformers takes them."""
    from transformers.distributed.configuration_utils import DistributedConfig

    return DistributedConfig(**degrees.fields())


def _from_pretrained(original: Any, making: Making, degrees: Degrees, say: Callable[[str], None]) -> Any:
    @functools.wraps(original)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if making.loading or any(kwargs.get(name) is not None for name in _OWN):
            with making.load():
                return original(cls, *args, **kwargs)
        placed = {name: value for name, value in kwargs.items() if name != "device_map"}
        with making.load():
            try:
                found = original(cls, *args, distributed_config=_config(degrees), **placed)
            except ValueError as problem:
                _say_whole(problem, cls, say)
                return original(cls, *args, **kwargs)
        same_in_group(found[0] if isinstance(found, tuple) else found)
        return found

    return from_pretrained


def _spread(module: Any, model: Any, degrees: Degrees, say: Callable[[str], None]) -> None:
    """In place; a model whose class has no plan stays whole on every rank, which is said."""
    try:
        distribute(module, model, degrees)
    except ValueError as problem:
        _say_whole(problem, type(model), say)


def _say_whole(problem: ValueError, kind: type, say: Callable[[str], None]) -> None:
    """Says that a class has no plan of its own; any other problem is raised again."""
    if _WITHOUT_PLAN not in str(problem):
        raise problem
    say(f"{kind.__name__} has no plan of its own to be spread by: each rank has a whole one")


def distribute(module: Any, model: Any, degrees: Degrees) -> None:
    """Leaves this rank's part of a model that every rank has whole, with the weights of the first rank.

    ValueError for a class without a plan; the model is then as it was.
    """
    from torch import nn

    config = _config(degrees)
    model._resolve_parallel_plans(config)  # raises before anything is changed
    config, device, meshes = type(model).prepare_distribute_model(config)
    whole = {name: each.detach() for name, each in model.state_dict().items()}
    for name in model.all_tied_weights_keys:
        whole.pop(name, None)
    _as_first_rank(whole, device)
    dtype = model.dtype
    for owner in model.modules():
        for name, each in owner._parameters.items():
            if each is not None:
                empty = each.detach().to("meta", copy=True)
                owner._parameters[name] = nn.Parameter(empty, requires_grad=each.requires_grad)
    model = type(model).maybe_distribute_model(model, config, meshes)
    _fill(module, model, whole, device, dtype)
    same_in_group(model)


def leave_as_they_are(module: Any) -> None:
    """After `accelerate.accelerator` has been imported: a model that is spread is wrapped in nothing more.

    accelerate 1.15 accelerator.py: prepare_model leaves one alone whose degrees it knows, experts are none to it, and
    hands any other to DDP, which refuses.
    """
    kind = module.Accelerator
    original = kind.prepare_model

    @functools.wraps(original)
    def prepare_model(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_spread(model):
            return original(self, model, *args, **kwargs)
        several, known = kind.multi_device, kind.distributed_type
        kind.multi_device = property(lambda _: False)
        if str(self.distributed_type).endswith("MULTI_CPU"):  # wrapped in DDP whatever the devices are
            kind.distributed_type = property(lambda _: module.DistributedType.NO)
        try:
            return original(self, model, *args, **kwargs)
        finally:
            kind.multi_device, kind.distributed_type = several, known

    kind.prepare_model = prepare_model


def _as_first_rank(tensors: dict[str, Any], device: Any) -> None:
    """Gives every rank the first one's values."""
    import torch.distributed as dist

    for name in sorted(tensors):
        sent = tensors[name].to(device)
        dist.broadcast(sent, 0)
        tensors[name] = sent.to(tensors[name].device)


def _fill(module: Any, model: Any, whole: dict[str, Any], device: Any, dtype: Any) -> None:
    """The end of `from_pretrained`, from tensors instead of files."""
    config = module.LoadStateDictConfig(
        device_map={"": device},
        dtype=dtype,
        dtype_plan=model._get_dtype_plan(dtype),
        device_mesh=model._device_mesh,
        weight_mapping=[],
    )
    kept = [(owner, name, each) for owner in model.modules() for name, each in owner._buffers.items()]
    information, _ = model._load_pretrained_model(model, whole, None, config)
    model._finalize_model_loading(model, config, information)
    for owner, name, each in kept:
        # What no checkpoint holds is made anew there, and filled only in models that were never initialised.
        owner._buffers[name] = None if each is None else each.to(device)
    lost = [name for name, each in model.named_parameters() if each.is_meta]
    if lost:
        raise RuntimeError(f"{type(model).__name__} could not be spread over the ranks: {lost[0]} has no values")


def told_on_stderr(text: str) -> None:
    """Where nobody else listens."""
    print(text, file=sys.stderr)
