"""Which kernel a class takes, and on what it runs."""

from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.flash import second, third


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One of transformers' `attn_implementation`s."""

    name: str
    functions: Any
    """The module whose functions stand in."""
    of_hub: bool
    """Whether transformers gets it as a kernel of the hub."""
    sinks: bool = False
    """Whether it is there for attention sinks, which backward gives no gradient."""


SECOND = Implementation(name="flash_attention_2", functions=second, of_hub=False)
THIRD = Implementation(name="kernels-community/vllm-flash-attn3", functions=third, of_hub=True, sinks=True)
_KNOWN = {one.name: one for one in (SECOND, THIRD)}


def implementation_for(model_class: type[Any]) -> Implementation:
    """FlashAttention-2, or what else the class names (gpt-oss and its sinks: `_compatible_flash_implementations`).

    InputError where that is none that is traced.
    """
    accepted = getattr(model_class, "_compatible_flash_implementations", None)
    if accepted is None:
        return SECOND
    found = next((_KNOWN[name] for name in (SECOND.name, *accepted) if name in accepted and name in _KNOWN), None)
    if found is None:
        raise InputError(
            f"{model_class.__name__} runs flash attention only as {', '.join(accepted)}, which is not traced: "
            "use --attention sdpa"
        )
    return found


def implementation_of(model: Any) -> Implementation | None:
    """The one that a transformers model was built to call; None for another attention."""
    return named(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")


def named(name: str) -> Implementation | None:
    """The one that transformers calls so."""
    return _KNOWN.get(name)


def refuse_training(implementation: Implementation, model: Any) -> None:
    """InputError where what is trained would get no gradient."""
    trained = (name for name, parameter in model.named_parameters() if parameter.requires_grad)
    if implementation.sinks and any(name.endswith(".sinks") for name in trained):
        raise InputError(
            f"{implementation.name} gives attention sinks no gradient: use --attention eager, or --peft lora, which "
            "leaves them as they are"
        )


def refuse_device(implementation: Implementation, capability: tuple[int, int] | None) -> None:
    """InputError for devices that it is not built for (Dao-AILab/flash-attention README.md; of sinks
    vllm-flash-attn3/flash-attn/flash_api_stable.cpp: mha_fwd)."""
    if implementation.sinks and capability != (9, 0):
        raise InputError(f"{implementation.name} computes attention sinks on Hopper alone: use --attention eager")
    if capability is None or capability < (8, 0):
        raise InputError(
            "--attention flash needs a GPU of compute capability 8.0 (Ampere) or newer: use --attention sdpa"
        )
