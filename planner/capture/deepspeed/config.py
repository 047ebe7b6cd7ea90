"""What a DeepSpeed configuration says of a step, as deepspeed/runtime/config.py reads it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_plan.planner.capture.request import EngineFacts
from gpu_plan.planner.errors import InputError

_ADAM = "adamw"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The part of it that decides what a step is."""

    micro_batch: int
    accumulation: int
    dtype: str | None
    """`bfloat16` or `float16`, in which the model's parameters stand; None: as the script made them."""
    clipping: float
    optimizer: tuple[str, Mapping[str, Any]] | None
    """Type in lower case, and parameters; None where the script gives its own."""
    facts: EngineFacts
    raw: Mapping[str, Any]


def read(config: Any, world_size: int) -> EngineConfig:
    """Of a table, or of the file that has it. InputError where batch sizes contradict each other."""
    table = _table(config)
    zero = _mapping(table.get("zero_optimization"))
    stage = int(zero.get("stage", 0) or 0)
    micro, accumulation = _batch(table, world_size)
    made = _mapping(table.get("optimizer"))
    kind = str(made.get("type", _ADAM)).lower()
    return EngineConfig(
        micro_batch=micro,
        accumulation=accumulation,
        dtype=_dtype(table),
        clipping=float(table.get("gradient_clipping") or 0.0),
        optimizer=(kind, _mapping(made.get("params"))) if made else None,
        facts=EngineFacts(stage=stage, offload=_offload(zero, stage)),
        raw=table,
    )


def _table(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    if config is None:
        raise InputError("deepspeed.initialize is given no configuration: config=, or --deepspeed_config")
    try:
        found = json.loads(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as problem:
        raise InputError(f"DeepSpeed's configuration {config} cannot be read: {problem}") from None
    return _mapping(found)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dtype(table: Mapping[str, Any]) -> str | None:
    for keys, dtype in ((("bf16", "bfloat16"), "bfloat16"), (("fp16",), "float16")):
        if any(_mapping(table.get(key)).get("enabled") is True for key in keys):
            return dtype
    return None


def _batch(table: Mapping[str, Any], world_size: int) -> tuple[int, int]:
    """Micro batch and accumulation; two of the three sizes give the third (_set_batch_related_parameters)."""
    whole, micro = _count(table, "train_batch_size"), _count(table, "train_micro_batch_size_per_gpu")
    steps = _count(table, "gradient_accumulation_steps")
    if micro is None and whole is not None:
        micro = whole // (world_size * (steps or 1))
    if steps is None and whole is not None and micro:
        steps = whole // (world_size * micro)
    micro, steps = micro or 1, steps or 1
    if whole is not None and whole != micro * steps * world_size:
        raise InputError(
            f"DeepSpeed's configuration has train_batch_size {whole}, which is not micro batch {micro} x accumulation"
            f" {steps} x {world_size} devices: DeepSpeed refuses it, so plan it for the devices that it is written for"
        )
    return micro, steps


def _count(table: Mapping[str, Any], key: str) -> int | None:
    value = table.get(key)
    return None if value in (None, "auto") else int(value)


def _offload(zero: Mapping[str, Any], stage: int) -> str:
    """As `--offload` names it; below stage 3 DeepSpeed ignores `offload_param` (runtime/engine.py)."""
    optimizer = _device(zero, "offload_optimizer") or ("cpu" if zero.get("cpu_offload") is True else "")
    parameters = _device(zero, "offload_param") if stage == 3 else ""
    if stage == 3 and "nvme" in (optimizer, parameters):
        return "nvme"
    return "all" if parameters else "optimizer" if optimizer and stage else "none"


def _device(zero: Mapping[str, Any], key: str) -> str:
    device = str(_mapping(zero.get(key)).get("device") or "none").lower()
    return "" if device == "none" else device
