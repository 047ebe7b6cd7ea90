"""Switches activation checkpointing of a model, as its users do: through transformers' own method."""

import functools
import inspect
import warnings
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.specs import can_checkpoint
from gpu_plan.planner.trace.kernels.saved_operators import SAVED_OPERATORS
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.workload.stacks.registry import StackTraits
from gpu_plan.planner.workload.training import Checkpointing

_COUNTED = (torch.ops.aten.mm.default, torch.ops.aten.linear.default)
"""torchtitan distributed/activation_checkpoint.py: SelectiveAC._wrap_block, `mm_ops`."""


_OF_DIFFUSERS = "enable_gradient_checkpointing"
"""diffusers models/modeling_utils.py: ModelMixin's own method, which takes no arguments for what is kept."""
_BOUND = "_plan_bound_inputs"
"""Attribute of a model whose embedding's output requires a gradient since checkpointing was switched on here."""


def set_checkpointing(
    model: Any,
    mode: Checkpointing,
    every: int = 1,
    stack: StackTraits | None = None,
    *,
    reentrant: bool = False,
) -> None:
    """Switches transformers' own activation checkpointing on or off (the older name is kept for transformers 5.0).

    `every`: only each such layer is checkpointed, the first one always. `stack`: whose policy is selective, where it
    has one of its own. `reentrant`: by torch's older way, in full. InputError where the model's class cannot.

    peft utils/other.py: prepare_model_for_kbit_training makes the embedding's output require a gradient together
    with checkpointing, unless it is told that checkpointing is not reentrant; few callers tell it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _free_inputs(model)
        if mode is not Checkpointing.NONE and getattr(model, "_plan_kbit", False):
            _bind_inputs(model)
        if getattr(model, _OF_DIFFUSERS, None) is not None:
            _switch_diffusers(model, mode)
            return
        if mode is Checkpointing.NONE:
            if getattr(model, "is_gradient_checkpointing", False):
                model.gradient_checkpointing_disable()
            return
        if not getattr(model, "supports_gradient_checkpointing", False):
            raise InputError(f"{type(model).__name__} does not support activation checkpointing")
        kbit = getattr(model, _BOUND, False)
        _free_inputs(model)  # transformers hangs hooks on them itself, and would forget those that are there
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs=_arguments(model, mode, stack, reentrant), **_every_argument(model, every)
        )
        setattr(model, _BOUND, True)
        if kbit and not getattr(model, "_require_grads_hooks", True):
            _bind_inputs(model)


def own_reentrant(model: Any) -> bool:
    """Whether a model's checkpoints, as its own script switched them on, are torch's reentrant ones.

    transformers modeling_utils.py: _set_gradient_checkpointing hangs the function with its arguments on each layer.
    """
    for module in model.modules():
        function = vars(module).get("_gradient_checkpointing_func")
        if isinstance(function, functools.partial):
            return bool(function.keywords.get("use_reentrant", False))
    return False


def _switch_diffusers(model: Any, mode: Checkpointing) -> None:
    if mode is Checkpointing.NONE:
        model.disable_gradient_checkpointing()
    elif mode is Checkpointing.SELECTIVE or not can_checkpoint(model):
        raise CannotSplitError(f"--checkpointing {mode}: {type(model).__name__} does not support it")
    else:
        model.enable_gradient_checkpointing()


def _arguments(model: Any, mode: Checkpointing, stack: StackTraits | None, reentrant: bool) -> dict[str, Any]:
    """Keyword arguments of torch.utils.checkpoint.checkpoint."""
    if mode is not Checkpointing.SELECTIVE:
        return {"use_reentrant": reentrant}
    if "value" in inspect.signature(model._set_gradient_checkpointing).parameters:
        # transformers modeling_utils.py: _set_gradient_checkpointing; models written before 4.35 have another form of
        # it, which drops the arguments in silence.
        raise CannotSplitError(
            f"--checkpointing selective: {type(model).__name__} takes no arguments for checkpointing"
        )
    names = (*SAVED_OPERATORS, *(stack.selective_keeps if stack is not None else ()))
    spaces = (torch.ops.aten, torch.ops._c10d_functional)
    operators = [getattr(space, name).default for space in spaces for name in names if hasattr(space, name)]
    if stack is not None and stack.recomputes_every_second_product:
        return {"use_reentrant": False, "context_fn": functools.partial(_every_second, frozenset(operators))}
    return {
        "use_reentrant": False,
        "context_fn": functools.partial(create_selective_checkpoint_contexts, operators),
    }


def _every_second(kept: frozenset[Any]) -> Any:
    """Contexts of one checkpoint that keep `kept`, but compute every second product again.

    torchtitan distributed/activation_checkpoint.py: SelectiveAC._wrap_block, which counts apart what runs forward and
    what runs again.
    """
    counts = {False: 0, True: 0}

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator in _COUNTED:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _every_argument(model: Any, every: int) -> dict[str, int]:
    """transformers modeling_utils.py: _set_gradient_checkpointing counts its GradientCheckpointingLayer instances."""
    if every == 1:
        return {}
    if "every_n_layers" not in inspect.signature(model._set_gradient_checkpointing).parameters:
        raise CannotSplitError(
            f"--set checkpoint.every={every}: the installed transformers, or {type(model).__name__}, "
            "checkpoints all layers or none"
        )
    return {"every_n_layers": every}


def _bind_inputs(model: Any) -> None:
    """The embedding's output requires a gradient from now on."""
    model.enable_input_require_grads()
    setattr(model, _BOUND, True)


def _free_inputs(model: Any) -> None:
    """It no longer does for anything that was switched on here; what its owner has asked for stays.

    transformers modeling_utils.py: gradient_checkpointing_enable hangs hooks on it that gradient_checkpointing_disable
    leaves there, but for adapters that it loaded itself: the next step of a frozen embedding would run backward through
    the first layer's input.
    """
    if getattr(model, _BOUND, False) and hasattr(model, "disable_input_require_grads"):
        model.disable_input_require_grads()
        setattr(model, _BOUND, False)
