"""What every training run must say before its memory can be compared."""

import re
from collections.abc import Mapping

from benchmarks.accuracy.row import Row, SetAside, check_sense, field, number, text, whole

_AXES = ("tp", "pp", "cp", "ep")
_UNEVEN = ("variable", "cap", "unpacked", "truncation", "not fixed")
_LORA = frozenset({"rank", "r", "alpha", "lora_alpha", "dropout", "lora_dropout", "targets", "target_modules", "basis",
                   "task_type", "use_rslora", "notes"})  # fmt: skip
"""What a row's `lora` may say of plain adapters."""
_ELSE = frozenset({"fp8", "float8", "peft", "use_liger", "use_liger_kernel", "cuda_graphs",
                   "ema", "offload", "cpu_offload", "offload_optimizer", "offload_activations", "activation_offload",
                   "frozen", "freeze", "freeze_layers", "frozen_layers", "trainable", "trainable_layers", "unfrozen",
                   "reference_model", "teacher", "draft_model", "mtp", "neftune", "neftune_noise_alpha",
                   "label_smoothing", "label_smoothing_factor", "image_size", "images", "resolution"})  # fmt: skip
"""Fields that no row of the schema has and that change what a step holds."""
_PARTLY = re.compile(r"\b(except|but|only|every (other|second|2nd|\d\w*)|half|partial\w*|some|skip\w*|last|unsloth)\b")
"""What makes checkpoints that are called full others than of every layer."""
_SCORED = ("peak_allocated_gib", "peak_reserved_gib", "peak_active_gib", "nvidia_smi_gib")


def died(row: Row) -> bool:
    """Whether the run ended for want of memory."""
    return field(row, "measured.fits") is False


def has_figures(row: Row) -> bool:
    return any(number(row, f"measured.{name}") is not None for name in _SCORED)


def check(row: Row, degrees: tuple[str, ...] = ()) -> None:
    """SetAside for what no software could make comparable, and for degrees other than the mirrored ones."""
    if text(row, "confidence") == "low":
        kind = text(row, "seq_len_kind").split(";")[0]
        raise SetAside(f"configuration incomplete{f': sequences of {kind}' if kind else ''}")
    lived = not died(row)
    if lived and (field(row, "statistic_defined") is False or not has_figures(row)):
        stated = field(row, "measured.fits") is not True
        if stated:
            raise SetAside("does not say which statistic it reports" if field(row, "measured") else "nothing measured")
    if any((whole(row, f"parallel.{axis}") or 1) > 1 for axis in _AXES if axis not in degrees):
        raise SetAside("tensor, pipeline, context or expert parallelism")
    check_sense(row)
    _check_adapters(row)
    for name in sorted(_ELSE & set(row)):
        if field(row, name) not in (None, False, "", "none", "no", 0):
            raise SetAside(f"{name}: not mirrored")


def _check_adapters(row: Row) -> None:
    """SetAside for adapters of which the row says what makes them others than LoRA's two matrices."""
    given = field(row, "lora")
    if not isinstance(given, Mapping):
        return
    for name in sorted(set(map(str, given)) - _LORA):
        if given.get(name) not in (None, False, "", "none", "no", 0):
            raise SetAside(f"adapters with {name}: not mirrored")


def check_lengths(row: Row) -> None:
    """SetAside where samples are shorter than the stated length."""
    kind = text(row, "seq_len_kind")
    if any(word in kind.lower() for word in _UNEVEN):
        raise SetAside(f"lengths vary: {kind.split(';')[0]}")


def strategy_of(row: Row) -> str:
    """Name in the registry. SetAside where the row's way to spread the step is not modelled."""
    said = text(row, "strategy")
    words = said.lower()
    if not words:
        raise SetAside("strategy not stated")
    if "offload" in words and not re.search(r"(no|without|w/o) (cpu )?offload", words):
        raise SetAside(f"{said}: offload is not compared")
    count = whole(row, "gpu.count") or 1
    if words.startswith("single") or re.fullmatch(r"(one|1) (gpu|process)|none|no sharding", words):
        if count > 1:
            raise SetAside("one process on several GPUs")
        return "single"
    name = _parallel_name(words)
    if name is None:
        raise SetAside(f"{said.split(',')[0]} is not modelled")
    if count == 1:
        raise SetAside(f"{said.split(',')[0]} on one GPU")
    return name


def _parallel_name(words: str) -> str | None:
    if re.search(r"\bhsdp\b|reshard\w*[ =:]*(false|no|never|off|0)\b|zero\+\+|hpz|qwz|mics", words):
        return None
    if re.search(r"\b2d\b|\+ ?(tp|sp|cp)\b|ulysses|size_based|no_wrap|fairscale", words):
        return None
    if any(word in words for word in ("no_shard", "shard_grad_op", "hybrid", "simplefsdp", "tensor", "pipeline")):
        return None
    zero = re.search(r"(?:zero[- _]?(?:stage)?|deepspeed,? (?:zero )?stage)[- _]?([123])\b", words)
    if zero is not None:
        return f"zero{zero[1]}"
    for word, name in (("fsdp1", "fsdp1"), ("fsdp2", "fsdp"), ("fully_shard", "fsdp")):
        if words.startswith(word):
            return name
    if re.match(r"(pytorch |accelerate )?fsdp\b.*\bfull_shard\b", words):
        return "fsdp1"  # accelerate utils/dataclasses.py: FSDP2 has no sharding strategy by that name
    return "ddp" if words.startswith(("ddp", "distributeddataparallel")) else None


def checkpoints(row: Row) -> bool:
    """Whether every layer is recomputed. SetAside for anything between."""
    said = text(row, "activation_checkpointing")
    if "offload" in said.lower() and not re.search(r"(no|without|w/o) (cpu )?offload", said.lower()):
        raise SetAside(f"checkpointing {said}: offload is not compared")
    if said.lower().startswith("full"):
        if _PARTLY.search(said.lower()):
            raise SetAside(f"checkpointing {said}")
        return True
    if said.lower() in ("none", "no", "off", "false", "disabled"):
        return False
    if said.lower() in ("true", "yes", "on", "enabled", "gradient_checkpointing", "gradient checkpointing"):
        return True  # transformers has no other (modeling_utils.py: gradient_checkpointing_enable): every layer
    raise SetAside(f"checkpointing {said or 'not stated'}")
