"""FSDP's keys, as Accelerate, the Trainer and axolotl write them: with or without the prefix `fsdp_`.

Sources: accelerate utils/dataclasses.py (FullyShardedDataParallelPlugin), transformers training_args.py
(_process_fsdp_args, _apply_legacy_fsdp_to_config), axolotl utils/schemas/fsdp.py.
"""

from gpu_plan.planner.from_config.formats.shared import settings_of
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine

_WRAPS = ("TRANSFORMER_BASED_WRAP",)


def read_fsdp(reading: Reading, table: Table, version: int, sharding: str | None = None) -> None:
    """Strategy, offload and checkpointing; `sharding` is FSDP1's strategy where it stands outside the table."""
    source = f"FSDP version {version}"
    reshard = _either(table, "reshard_after_forward")
    if version == 1:
        _first(reading, table, sharding, reshard, source)
    else:
        reading.say("strategy", strategy_by(Engine.FSDP2).name, source)
        if reshard is not None and (kept := table.flag(reshard)) is not None:
            reading.set("fsdp.reshard_after_forward", kept, f"{table.name(reshard)}: {str(kept).lower()}")
        _either_word(table, "sharding_strategy")
    for name in ("offload_params", "cpu_offload"):
        key = _either(table, name)
        if key is not None and table.flag(key):
            reading.say("offload", "all", f"{table.name(key)}: true")
    if reading.value("offload") is None:
        reading.say("offload", "none", f"{source} without offload_params")
    for name in ("activation_checkpointing", "activation_checkpointing_offload"):
        key = _either(table, name)
        if key is not None and table.flag(key):
            reading.say("checkpointing", "full", f"{table.name(key)}: true")
            if name.endswith("offload") and version != 1:
                reading.set("checkpoint.offload", "true", f"{table.name(key)}: true")
    _prefetching(reading, table)
    _original(reading, table, version)
    policy = _either_word(table, "auto_wrap_policy")
    if policy is not None and policy.upper() not in _WRAPS:
        reading.approximate(f"auto_wrap_policy: {policy}: planned with one unit per layer")


def _original(reading: Reading, table: Table, version: int) -> None:
    """FSDP1's `use_orig_params`, true where it is not written: accelerate commands/launch.py (fsdp_use_orig_params),
    transformers training_args.py (_process_fsdp_args). FSDP2 has no such choice and lets it pass."""
    key = _either(table, "use_orig_params")
    if key is None or table.flag(key) is not False:
        return
    source = f"{table.name(key)}: false"
    if version == 2:
        reading.notes.append(f"{source}: FSDP2 always has them, and does not heed it")
    elif "fsdp.use_orig_params" in settings_of(reading):
        reading.set("fsdp.use_orig_params", False, source)
    else:
        reading.approximate(f"{source}: planned with parameters as the model has them")


def _prefetching(reading: Reading, table: Table) -> None:
    """When a unit is gathered that is computed next: plans have PyTorch's defaults."""
    for name in ("backward_prefetch", "backward_prefetch_policy"):
        value = _either_word(table, name)
        if value is not None and value.upper() not in ("BACKWARD_PRE", "1"):
            reading.approximate(
                f"{name}: {value}: planned with the next unit gathered before the gradients of this one"
            )
    key = _either(table, "forward_prefetch")
    if key is not None and table.flag(key):
        reading.approximate(f"{table.name(key)}: true: planned with units gathered one by one")
    for name, usual in (("limit_all_gathers", True), ("activation_cpu_offload", False)):
        key = _either(table, name)
        if key is not None and table.flag(key) is not usual:
            reading.approximate(f"{table.name(key)}: {str(not usual).lower()}: planned with PyTorch's default")


def _first(reading: Reading, table: Table, sharding: str | None, reshard: str | None, source: str) -> None:
    """FSDP1's sharding strategy: under its own key, or under FSDP2's."""
    named = _either_word(table, "sharding_strategy") or (table.word(reshard) if reshard else None) or sharding
    kind = (named or "FULL_SHARD").upper()
    kind = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "TRUE": "FULL_SHARD"}.get(
        kind, "SHARD_GRAD_OP" if kind == "FALSE" else kind
    )
    source = f"{source}, {kind}"
    if kind == "FULL_SHARD":
        reading.say("strategy", strategy_by(Engine.FSDP1).name, source)
    elif kind == "SHARD_GRAD_OP":
        reading.say("strategy", strategy_by(Engine.FSDP2).name, source)
        reading.set("fsdp.reshard_after_forward", False, source)
        reading.approximate(f"{source}: planned as its FSDP2 counterpart")
    elif kind == "NO_SHARD":
        reading.plain = True
        reading.approximate(f"{source}: planned as DDP, which holds as much")
    elif kind in ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2"):
        reading.say("strategy", strategy_by(Engine.FSDP2, replicates=True).name, source)
        if kind == "HYBRID_SHARD_ZERO2":
            reading.set("fsdp.reshard_after_forward", False, source)
        reading.approximate(f"{source}: planned as its FSDP2 counterpart")
    else:
        raise reading.contradiction(f"sharding strategy {kind} is not one of FSDP's: use FULL_SHARD or SHARD_GRAD_OP")


def version_of(table: Table, default: int) -> int:
    """1 or 2, from `fsdp_version` or `version`."""
    key = _either(table, "version")
    number = default if key is None else table.count(key) or default
    if number not in (1, 2):
        raise table.wrong(key or "version", "1 or 2")
    return number


def _either(table: Table, name: str) -> str | None:
    """The key under which `name` stands, with or without the prefix."""
    return next((key for key in (f"fsdp_{name}", name) if table.has(key)), None)


def _either_word(table: Table, name: str) -> str | None:
    key = _either(table, name)
    return None if key is None else table.word(key)
