"""Words of options as values: what makes no sense is one line, with the nearest that does."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.workload.named import Named, known_names

E = TypeVar("E", bound=StrEnum | Named)


def choice(kind: type[E], value: str | None, option: str, *, where: str = "", later: Sequence[str] = ()) -> E | None:
    """A member of `kind`, or None when nothing was given.

    UsageError for an unknown word (`where`: of which task), NotBuiltError for one that later versions bring.
    """
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        # Imported where it is needed: `--help` must start at once.
        from gpu_plan.planner.nearest import did_you_mean

        if value.lower() in later:
            raise NotBuiltError(f"{option} {value.lower()}") from None
        names = known_names(kind)
        meant = [name for name in _MEANT.get(value.lower(), ()) if name in names]
        hint = f" Did you mean {' or '.join(meant)}?" if meant else did_you_mean(value.lower(), names, limit=1)
        raise UsageError(f"{option} {value!r} is unknown{where}: use {', '.join(names)}.{hint}") from None


_MEANT = {
    "fp16": ("fp16-mixed",),
    "float16": ("fp16-mixed", "fp16"),
    "half": ("fp16-mixed", "fp16"),
    "bfloat16": ("bf16-mixed", "bf16"),
    "float32": ("fp32",),
    "fp8": ("fp8-mixed",),
    "mixed": ("bf16-mixed", "fp16-mixed"),
    "adam": ("adamw",),
    "adamw_torch": ("adamw",),
    "adamw_torch_fused": ("adamw-fused",),
    "adamw_bnb_8bit": ("adamw-8bit",),
    "deepspeed": ("zero2", "zero3"),
    "zero": ("zero2", "zero3"),
    "fsdp2": ("fsdp",),
    "dp": ("ddp",),
    "cpu": ("optimizer", "all"),
    "true": ("full", "all"),
    "yes": ("full", "all"),
    "on": ("full", "all"),
    "false": ("none",),
    "no": ("none",),
    "off": ("none",),
    "cheap": ("cost",),
    "cheapest": ("cost",),
    "fast": ("speed",),
    "fastest": ("speed",),
    "flash_attention_2": ("flash",),
    "flash-attention-2": ("flash",),
    "4bit": ("nf4", "qlora"),
    "4-bit": ("nf4", "qlora"),
    "int4": ("nf4", "qlora"),
    "8bit": ("int8",),
    "8-bit": ("int8",),
}
"""What other programs, and people, call a value of ours; of one option those that it has."""
_LARGEST = 2**31


def positive(value: str | None, option: str) -> int | None:
    """A positive integer, also written `4k` for 4096."""
    if value is None:
        return None
    text = value.strip().lower().replace("_", "")
    factor = 1024 if text.endswith("k") else 1
    digits = text.removesuffix("k")
    number = int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
    if not 0 < number < _LARGEST:
        searched = ": leave it out, and it is searched" if value.strip().lower() in ("auto", "max") else ""
        raise UsageError(f"{option} {value!r} is not a positive integer{searched}")
    return number


_WEEK = 7 * 24 * 3600


def script_seconds(word: str | None) -> float | None:
    """What `--script-seconds` says. UsageError for what is no number of seconds from 1 to a week."""
    if word is None:
        return None
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= _WEEK:
        raise UsageError(f"--script-seconds {word[:40]}: give seconds of processor time, from 1 to {_WEEK}")
    return seconds
