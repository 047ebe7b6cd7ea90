"""Within, transformers finds the kernels installed: its own integration runs, functions on meta stand in."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.flash.chosen import SECOND, Implementation, named, refuse_device
from gpu_plan.planner.model.build.lean.imports import lean_imports

with lean_imports():
    from transformers import modeling_flash_attention_utils as installed
    from transformers import modeling_utils
    from transformers.integrations import hub_kernels

_OLD_NAME = "_flash_attention_forward"
"""Modules of the older style (Falcon, GPT-J, GPT-Neo) import this name only where the package is."""


def _with_kvcache(*args: Any, **kwargs: Any) -> Any:
    """Decoding with a paged cache; neither a training step nor generate calls it."""
    raise InputError("flash attention with a paged cache is not traced")


@contextlib.contextmanager
def flash_package(implementation: Implementation = SECOND) -> Iterator[None]:
    """Within, transformers finds a version installed, and its functions are those of this package."""
    own = implementation.functions
    functions = {
        "_loaded_implementation": implementation.name,
        "_flash_fn": own.flash_attn_func,
        "_flash_varlen_fn": own.flash_attn_varlen_func,
        "_flash_with_kvcache_fn": _with_kvcache,
        "_pad_fn": installed._pad_input,
        "_unpad_fn": installed._unpad_input,
        "_process_flash_kwargs_fn": installed._lazy_define_process_function(own.flash_attn_varlen_func),
    }
    present = {name: value for name, value in functions.items() if hasattr(installed, name)}
    with contextlib.ExitStack() as stack:
        for name, value in present.items():
            stack.enter_context(mock.patch.object(installed, name, value))
        for module in _modules_without_old_name():
            forward = installed._flash_attention_forward
            stack.enter_context(mock.patch.object(module, _OLD_NAME, forward, create=True))
        # It tells the user, through its own logger, that it casts what autocast left in fp32.
        stack.enter_context(mock.patch.object(logging.getLogger("transformers"), "level", logging.CRITICAL))
        yield


@contextlib.contextmanager
def flash_allowed(implementation: Implementation = SECOND) -> Iterator[None]:
    """Within, a class that supports a version may be built with it on a machine without a GPU.

    transformers modeling_utils.py: _check_and_adjust_attn_implementation, _flash_attn_can_dispatch. A class that
    does not support it is still refused there.
    """
    matrix = modeling_utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX
    there = {**matrix[2], "general_availability_check": lambda: True}
    with (
        flash_package(implementation),
        mock.patch.dict(matrix, {2: there}),
        mock.patch.object(modeling_utils.PreTrainedModel, "_flash_attn_import_error", _second_is_found()),
    ):
        if implementation.of_hub:
            _registered(implementation, hub_kernels.load_and_register_attn_kernel)
        yield


@contextlib.contextmanager
def hub_answered(capability: tuple[int, int] | None) -> Iterator[None]:
    """Within, the kernels of the hub that are known are loaded from here, on a device that they run on; others are
    asked for as ever. InputError, to whoever asks, for a device that they do not run on."""
    original = hub_kernels.load_and_register_attn_kernel

    def load(name: str, *args: Any, **kwargs: Any) -> Any:
        known = named(name)
        if known is None or not known.of_hub:
            return original(name, *args, **kwargs)
        refuse_device(known, capability)
        _registered(known, original)
        return known.functions

    with mock.patch.object(hub_kernels, "load_and_register_attn_kernel", load):
        yield


def _registered(implementation: Implementation, register: Callable[[str], Any]) -> None:
    """Has transformers register a kernel of the hub, as it does when it has loaded it; that stays."""
    with (
        mock.patch.object(hub_kernels, "is_kernels_available", return_value=True),
        mock.patch.object(hub_kernels, "get_kernel", return_value=implementation.functions),
    ):
        register(implementation.name)


def _second_is_found() -> Any:
    """No import error for FlashAttention-2; other versions are looked for as ever."""
    original = modeling_utils.PreTrainedModel._flash_attn_import_error

    def check(model: Any, flash_attn_version: int, *args: Any, **kwargs: Any) -> None:
        if flash_attn_version != 2:
            original(model, flash_attn_version, *args, **kwargs)

    return check


def _modules_without_old_name() -> list[Any]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("transformers.models.")
        and ".modeling_" in name
        and "FlashAttention2" in "".join(vars(module))
        and not hasattr(module, _OLD_NAME)
    ]
