"""What options say about adapters and the base that they are trained on."""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.adapter import DEFAULT_RANK, Adapter
from gpu_plan.planner.model.quantization.words import is_bitsandbytes
from gpu_plan.planner.options.training.defaults import (
    precision_of,
)
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.strategy.known import (
    traits_of,
    unsharded,
)
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft, adapter_options, adapters_on
from gpu_plan.planner.workload.training import (
    Stack,
)

MOST_BESIDE = 16
"""Frozen adapters beside the trained one that are planned for."""


def targets(words: str | None) -> tuple[str, ...] | None:
    """Module names separated by commas, in order, each once."""
    if words is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    if not names:
        raise UsageError(f"--lora-targets {words!r} names no module; write them with commas: q_proj,v_proj")
    if "all-linear" in names and len(names) > 1:
        raise UsageError("--lora-targets all-linear means every linear layer: give it alone")
    return names


def check_adapters(given: Given) -> None:
    """UsageError for options that say something about adapters that there are not."""
    peft = given.peft or NO_ADAPTERS
    settings = dict(given.settings)
    for name, value in (
        ("--lora-rank", given.lora_rank),
        ("--lora-targets", given.lora_targets),
        ("--set lora.dropout", settings.get("lora.dropout")),
        ("--set lora.beside", settings.get("lora.beside")),
    ):
        if value is not None and not peft.adapts:
            raise UsageError(f"{name} needs {adapter_options()}")
    if int(settings.get("lora.beside", "0")) > MOST_BESIDE:
        raise UsageError(f"--set lora.beside={settings['lora.beside']}: write a number up to {MOST_BESIDE}")
    for key in ("quant.double", "quant.experts", "quant.storage", "quant.upcast"):
        if key in settings and not peft.quantises:
            needed = adapters_on(quantised=True)
            raise UsageError(f"--set {key} needs --peft {needed}: nothing else is quantised")
    if "quant.experts" in settings and settings.get("quant.base") == "int8":
        raise UsageError("--set quant.experts is about 4-bit bases, not int8")
    _check_base(peft, settings, given.strategy)


def _check_base(peft: Peft, settings: Mapping[str, str], strategy: str | None) -> None:
    """UsageError for a quantised base that the adapters cannot be trained on."""
    base = settings.get("quant.base")
    if base is None:
        return
    if not peft.adapts:
        raise UsageError(f"--set quant.base={base} needs {adapter_options()}")
    quantised = is_bitsandbytes(base)
    if peft.quantises != quantised:
        raise UsageError(f"--set quant.base={base} needs --peft {adapters_on(quantised=quantised)}, not {peft}")
    if base == "int8" and "quant.double" in settings:
        raise UsageError("--set quant.double is about 4-bit bases: int8 has one scale per row")
    if base == "int8" and strategy is not None and traits_of(strategy).wraps_blocks:
        whole = unsharded(2).name
        raise UsageError(
            f"--strategy {strategy} cannot shard bitsandbytes' int8 weights: use nf4, or --strategy {whole}"
        )


def adapter_of(given: Given, cluster: Cluster) -> Adapter | None:
    """The adapters that the options ask for, or None."""
    if given.peft is None or not given.peft.adapts:
        return None
    settings = dict(given.settings)
    return Adapter(
        peft=given.peft,
        rank=given.lora_rank or DEFAULT_RANK,
        targets=given.lora_targets or (),
        dropout=float(settings.get("lora.dropout", "0")),
        base=settings.get("quant.base", ""),
        beside=int(settings.get("lora.beside", "0")),
        double_quant=settings.get("quant.double") == "true",
        pack_experts=given.peft.quantises and packs_experts(given.stack, settings),
        compute_dtype=precision_of(given, cluster).compute_dtype,
    )


def packs_experts(stack: Stack | None, settings: Mapping[str, str]) -> bool:
    """Whether a quantised base has its fused experts packed: as given, else as the stack does by itself."""
    own = stack is not None and stack.traits.experts == "quantised" and settings.get("quant.base") != "int8"
    return settings.get("quant.experts", str(own).lower()) == "true"
