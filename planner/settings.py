"""The keys of `--set KEY=VALUE`: what they mean, what values they take, and which are still to come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.errors import NotBuiltError, UsageError
from planner.nearest import did_you_mean

_LARGEST = 10**13


@dataclass(frozen=True, slots=True)
class Setting:
    """One key."""

    kind: Literal["flag", "elements", "rate"]
    """`flag`: true or false; `elements`: a number of tensor elements; `rate`: at least 0, below 1."""
    meaning: str
    least: int = 0


SETTINGS: Mapping[str, Setting] = {
    "fsdp.reshard_after_forward": Setting("flag", "whether FSDP2 frees gathered parameters after forward (true)"),
    "zero.reduce_bucket_size": Setting("elements", "ZeRO's gradient bucket (5e8; hidden² under the Trainer)", 1),
    "zero.prefetch_bucket_size": Setting("elements", "ZeRO-3's prefetched parameters (5e7)"),
    "zero.param_persistence_threshold": Setting("elements", "ZeRO-3 keeps smaller parameters whole (1e5)"),
    "zero.max_live_parameters": Setting("elements", "ZeRO-3's bound on gathered parameters (1e9)"),
    "zero.max_reuse_distance": Setting("elements", "ZeRO-3 keeps what is needed again within this (1e9)"),
    "zero.sub_group_size": Setting("elements", "ZeRO-3's optimizer sub-groups (1e9)", 1),
    "zero.overlap_comm": Setting("flag", "whether ZeRO reduces beside backward, with a second bucket"),
    "zero.pin_memory": Setting("flag", "whether offloaded state is pinned host memory (true)"),
    "lora.dropout": Setting("rate", "dropout before the adapters (0)"),
    "quant.double": Setting("flag", "whether QLoRA quantises its scales as well (false)"),
}

LATER = (
    "dtype.params",
    "dtype.grads",
    "dtype.reduce",
    "dtype.optimizer",
    "ddp.gradient_as_bucket_view",
    "alloc.expandable_segments",
    "data.padding",
    "memory.reserve",
    "loss.variant",
)
"""Keys of the interface that later versions bring; refused by name."""


def parse_settings(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` pairs, sorted; UsageError for unknown keys or values, the nearest key offered."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word!r}: write KEY=VALUE, such as fsdp.reshard_after_forward=false")
        if key in LATER:
            raise NotBuiltError(f"--set {key}")
        setting = SETTINGS.get(key)
        if setting is None:
            hint = did_you_mean(key, (*SETTINGS, *LATER), limit=1)
            raise UsageError(f"--set {key}: unknown setting; known: {', '.join(SETTINGS)}.{hint}")
        found[key] = _checked(key, setting, value.strip().lower())
    return tuple(sorted(found.items()))


def _checked(key: str, setting: Setting, value: str) -> str:
    if setting.kind == "flag":
        if value not in ("true", "false"):
            raise UsageError(f"--set {key}={value}: use true or false")
        return value
    if setting.kind == "rate":
        return _rate(key, value)
    try:
        number = float(value) if len(value) < 32 else -1.0
    except ValueError:
        number = -1.0
    if not (setting.least <= number < _LARGEST) or number != int(number):
        raise UsageError(f"--set {key}={value}: use a whole number of elements, such as 5e8")
    return str(int(number))


def _rate(key: str, value: str) -> str:
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 1.0:
        raise UsageError(f"--set {key}={value}: use a rate of at least 0 and below 1, such as 0.05")
    return str(rate)
