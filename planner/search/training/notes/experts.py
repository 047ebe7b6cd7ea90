"""Experts that bitsandbytes does not pack: what they take, and what to do about it."""

from gpu_plan.planner.dtypes import element_bits, is_floating
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.stacks.registry import Stack
from gpu_plan.planner.workload.training import Workload

_PACKED_BITS = 4.5
"""NF4 with an fp32 scale for 64 elements."""


def unpacked_experts(spec: ModelSpec, workload: Workload) -> str | None:
    """One line where a quantised base keeps fused experts wide, or has none to pack; None elsewhere.

    transformers 5 holds a layer's experts as parameters of three dimensions, and bitsandbytes packs linear layers alone
    (transformers integrations/bitsandbytes.py: replace_with_bnb_linear).
    """
    if not workload.peft.quantises:
        return None
    if "quant.experts" in dict(workload.settings) and not any("expert" in p.name.lower() for p in spec.parameters):
        return f"--set quant.experts is without effect: {spec.class_name} has no experts"
    held = _wide(spec)
    elements = sum(p.numel for p in held)
    if not elements:
        return None
    regime = autocast_regime(workload.precision, workload.stack, workload.peft)
    dtype = regime.of(held[0])
    bits = element_bits(dtype)
    return (
        f"The experts are NOT quantised: transformers 5 holds them as {len(held)} fused parameters, and bitsandbytes"
        f" packs linear layers alone. {elements:.3g} elements stay in {dtype}, {_gib(elements, bits)} GiB in all, not"
        f" {_gib(elements, _PACKED_BITS)} packed. {_advice(workload.stack, bits)}"
    )


def wide_experts(spec: ModelSpec, workload: Workload) -> bool:
    """Whether a base in four bits keeps fused experts wide, which other loaders pack."""
    return workload.peft.quantises and dict(workload.settings).get("quant.base") != "int8" and bool(_wide(spec))


def fused_experts(spec: ModelSpec) -> bool:
    """Whether the class holds experts that no base packs by itself."""
    return bool(_wide(spec))


def _wide(spec: ModelSpec) -> list[ParameterSpec]:
    """Fused experts that are no packed ones."""
    fused = (p for p in spec.parameters if len(p.shape) >= 3 and "expert" in p.name.lower() and is_floating(p.dtype))
    return [p for p in fused if p.tied_to is None]


def _gib(elements: int, bits: float) -> str:
    return f"{elements * bits / 8 / GIB:.1f}"


def _advice(stack: Stack, bits: int) -> str:
    packing = [s for s in Stack if s.traits.experts == "quantised"]
    asked = [f"{s} with {s.traits.experts_word}" for s in Stack if s.traits.experts == "on request"]
    words = [f"pack them with {' or '.join([*map(str, packing), *asked])} (--set quant.experts=true)"]
    if bits > 16:
        narrow = [str(s) for s in Stack if not s.traits.packed_base.wide and s.traits.loop == stack.traits.loop]
        narrow = narrow or [str(s) for s in Stack if not s.traits.packed_base.wide]
        words.append(
            f"or leave peft's prepare_model_for_kbit_training out, as {' and '.join(narrow[:3])} do: half of it"
        )
    return f"What to do: {'; '.join(words)}."
