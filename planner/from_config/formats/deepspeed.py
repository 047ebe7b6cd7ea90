"""DeepSpeed's JSON file. Meanings: deepspeed runtime/config.py, runtime/zero/config.py, offload_config.py (0.19)."""

from collections.abc import Mapping

from gpu_plan.planner.from_config.formats.shared import clipping, other_optimizer, say_mixed, say_otherwise
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import several
from gpu_plan.planner.from_config.table import AUTO, MOST, Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.optimizers.registry import by_deepspeed_type

SIGNS = several(
    "train_batch_size", "steps_per_print", "gradient_clipping", "wall_clock_breakdown",
    alone=("zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"),
)  # fmt: skip

_SIZES = {
    "reduce_bucket_size": ("zero.reduce_bucket_size", 500_000_000),
    "stage3_prefetch_bucket_size": ("zero.prefetch_bucket_size", 50_000_000),
    "stage3_param_persistence_threshold": ("zero.param_persistence_threshold", 100_000),
    "stage3_max_live_parameters": ("zero.max_live_parameters", 1_000_000_000),
    "stage3_max_reuse_distance": ("zero.max_reuse_distance", 1_000_000_000),
    "sub_group_size": ("zero.sub_group_size", 1_000_000_000),
}
"""`--set` key and DeepSpeed's own default by its key (runtime/zero/config.py)."""
_THIRD_ONLY = frozenset(_SIZES) - {"reduce_bucket_size"}
_TYPE = "adamw"
"""Of an optimizer's table that names none."""
_ON = ("contiguous_gradients", "reduce_scatter", "allgather_partitions")
_NO_COUNTERPART = (
    "zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
    "zero_hpz_partition_size", "mics_shard_size", "zenflow", "offload++",
)  # fmt: skip


_NOT_PLANNED = (
    "pipeline", "tensor_parallel", "sequence_parallel_size", "compile", "compression_training", "data_efficiency",
    "progressive_layer_drop", "sparse_attention", "curriculum_learning", "activation_checkpointing",
)  # fmt: skip


def _enabled(value: object) -> bool:
    """Whether a section is on: where any table in it that can be switched is; one that has no switch is."""
    if not isinstance(value, Mapping):
        return True
    inner = [item for item in value.values() if isinstance(item, Mapping)]
    switch = value.get("enabled")
    if switch is not None:
        return switch is True
    return any(_enabled(item) for item in inner) if inner else True


def read(reading: Reading) -> None:
    """The file as it is given to `deepspeed --deepspeed_config`, or named by another one."""
    read_deepspeed(reading, reading.table)


def read_deepspeed(reading: Reading, table: Table) -> None:
    """Notes what a DeepSpeed table says; `auto` leaves to the Trainer or Accelerate what it stands for."""
    _zero(reading, _sharding(table))
    _precision(reading, table)
    _batch(reading, table)
    _optimizer(reading, table.table("optimizer"))
    clipping(reading, table.rate("gradient_clipping"), "gradient_clipping")
    say_otherwise(reading, table, {"wall_clock_breakdown": "planned without the synchronisations of its timers"})
    profiler = table.table("flops_profiler") if isinstance(table.peek("flops_profiler"), Mapping) else None
    if profiler is not None:
        say_otherwise(reading, profiler, {"enabled": "planned without a profiler"})
    for name in _NOT_PLANNED:
        value = table.raw(name)
        if value in (None, "", 0, 1, False):
            continue
        if _enabled(value):
            reading.approximate(f"{table.name(name)} is not planned for")


def _sharding(table: Table) -> Table | None:
    """`zero_optimization`, which was a flag once: runtime/zero/config.py, read_zero_config_deprecated."""
    value = table.raw("zero_optimization")
    if isinstance(value, bool):
        return Table({"stage": int(value)}, table.where, f"{table.name('zero_optimization')}.")
    return table.table("zero_optimization")


def _zero(reading: Reading, zero: Table | None) -> None:
    stage = None if zero is None else zero.count("stage", 0)
    if zero is None or not stage:
        reading.plain = True
        reading.approximate("ZeRO stage 0: planned without DeepSpeed's own buffers, as DDP")
        return
    if stage > 3:
        raise zero.wrong("stage", "0 to 3")
    reading.say("strategy", strategy_by(Engine.DEEPSPEED, stage=stage).name, f"{zero.name('stage')}: {stage}")
    _offload(reading, zero, stage)
    for key, (setting, default) in _SIZES.items():
        if key in _THIRD_ONLY and stage != 3:
            continue
        number = zero.count(key, 0, MOST)
        # Plans have DeepSpeed's defaults, but for the Trainer, which makes its own where nothing is written.
        if number is not None and (number != default or reading.trainer):
            reading.set(setting, number, f"{zero.name(key)}: {number}")
    overlap = zero.flag("overlap_comm")
    if overlap is not None and overlap is not (stage == 3):
        reading.set("zero.overlap_comm", overlap, f"{zero.name('overlap_comm')}: {str(overlap).lower()}")
    if zero.flag("round_robin_gradients") and reading.value("offload") not in (None, "none"):
        # runtime/zero/stage_1_and_2.py: the order in which gradients are copied to the host
        reading.approximate(f"{zero.name('round_robin_gradients')}: true: planned with gradients copied in their order")
    for key in _ON:
        if zero.flag(key) is False:
            reading.approximate(f"{zero.name(key)}: false: planned with DeepSpeed's default, true")
    for key in _NO_COUNTERPART:
        if zero.has(key) and zero.raw(key) not in (False, 1, -1):
            reading.approximate(f"{zero.name(key)} changes what is held and is not planned for")


def _offload(reading: Reading, zero: Table, stage: int) -> None:
    optimizer = _device(reading, zero, "offload_optimizer")
    parameters = _device(reading, zero, "offload_param") if stage == 3 else None
    if zero.flag("cpu_offload"):
        optimizer = optimizer or "cpu"
    ignored = zero.table("offload_param") if stage != 3 else None
    if ignored is not None and (ignored.word("device") or "none").lower() != "none":
        # runtime/engine.py hands it to stage 3 alone, and says nothing elsewhere.
        reading.notes.append(
            f"{zero.name('offload_param')} needs stage 3, and the stage is {stage}: DeepSpeed ignores it"
        )
    if "nvme" in (optimizer, parameters) and stage == 3:
        say_swapping(reading, optimizer, parameters, f"{zero.name('offload_optimizer')} or offload_param: device nvme")
        _swap_files(reading, zero)
    elif parameters:
        reading.say("offload", "all", f"{zero.name('offload_param')}: device cpu")
        if optimizer is None:
            reading.approximate("parameters are offloaded without the optimizer: planned with both in host memory")
    elif optimizer:
        reading.say("offload", "optimizer", f"{zero.name('offload_optimizer')}: device {optimizer}")
        if optimizer == "nvme":
            reading.approximate(f"stage {stage} keeps in RAM what {zero.name('offload_optimizer')} wants on NVMe")
    else:
        reading.say("offload", "none", f"{zero.name('stage')}: {stage} without offload")


def say_swapping(reading: Reading, optimizer: str | None, parameters: str | None, source: str) -> None:
    """`--offload nvme`, and where the weights are."""
    reading.say("offload", "nvme", source)
    if optimizer != "nvme":
        reading.approximate("parameters are on NVMe without the optimizer: planned with both in files")
    elif parameters != "nvme":
        reading.set("zero.offload_param", parameters or "none", source)


_SWAPPED = {
    "offload_param": {
        "buffer_count": "zero.param_buffer_count",
        "buffer_size": "zero.param_buffer_size",
        "max_in_cpu": "zero.max_in_cpu",
    },
    "offload_optimizer": {"buffer_count": "zero.optimizer_buffer_count"},
}
"""`--set` key by table and key (runtime/zero/offload_config.py)."""


def _swap_files(reading: Reading, zero: Table) -> None:
    for name, keys in _SWAPPED.items():
        table = zero.table(name)
        if table is None or (table.word("device") or "").lower() != "nvme":
            continue
        path = table.word("nvme_path")
        if path is not None:
            reading.set("zero.nvme_path", path, f"{table.name('nvme_path')}: {path}")
        for key, setting in keys.items():
            number = table.count(key, 0)
            if number is not None:
                reading.set(setting, number, f"{table.name(key)}: {number}")
        for key in ("pipeline_read", "pipeline_write"):
            if table.has(key) and table.flag(key):
                reading.approximate(f"{table.name(key)} takes more buffers, which is not planned for")


def _device(reading: Reading, zero: Table, key: str) -> str | None:
    table = zero.table(key)
    if table is None:
        return None
    device = (table.word("device") or "none").lower()
    pinned = table.flag("pin_memory")
    if device not in ("cpu", "nvme", "none"):
        raise table.wrong("device", "cpu, nvme or none")
    if device == "cpu" and not pinned:
        reading.set("zero.pin_memory", False, f"{table.name('pin_memory')}: false, or DeepSpeed's default")
    return None if device == "none" else device


def _precision(reading: Reading, table: Table) -> None:
    enabled, open_ = [], any(table.peek(key) == AUTO for key in table.listed())  # a Trainer fills in the rest
    for kind in ("bf16", "fp16"):
        inner = table.table(kind) or (table.table("bfloat16") if kind == "bf16" else None)
        if inner is None:
            continue
        value = inner.raw("enabled")
        open_ = open_ or value == "auto"
        if value != "auto" and inner.flag("enabled"):
            enabled.append(kind)
    if len(enabled) == 2:
        raise reading.contradiction("bf16.enabled and fp16.enabled are both true: DeepSpeed takes one")
    if enabled:
        say_mixed(reading, enabled[0], f"{table.name(enabled[0])}.enabled: true")
    elif not open_ and reading.value("precision") is None and not reading.trainer:
        # Where they are absent the Trainer and Accelerate put in their own (DeepSpeedPlugin.set_mixed_precision).
        say_mixed(reading, "no", "neither bf16 nor fp16 is enabled")


def _batch(reading: Reading, table: Table) -> None:
    micro = table.count("train_micro_batch_size_per_gpu")
    steps = table.count("gradient_accumulation_steps")
    whole = table.count("train_batch_size")
    if micro is not None:
        reading.say("micro-batch", micro, f"{table.name('train_micro_batch_size_per_gpu')}: {micro}")
    if steps is not None:
        reading.say("grad-accum", steps, f"{table.name('gradient_accumulation_steps')}: {steps}")
    if whole is not None:
        source = f"{table.name('train_batch_size')}: {whole}"
        reading.say("global-batch", whole, source)
        if micro is None and steps is None and not reading.trainer and reading.value("micro-batch") is None:
            _alone(reading, table, whole, source)


def _alone(reading: Reading, table: Table, whole: int, source: str) -> None:
    """The batch of all ranks alone is one micro batch on each: runtime/config.py, _set_batch_related_parameters.

    Where a Trainer or Accelerate may fill in the others (`auto`), nothing follows from it.
    """
    others = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    count = reading.count
    if count is None or whole % count or any(table.peek(key) == AUTO for key in others):
        return
    reading.say("micro-batch", whole // count, f"{source} over {count} processes")
    reading.say("grad-accum", 1, source)


def _optimizer(reading: Reading, table: Table | None) -> None:
    if table is None:
        return
    kind = table.word("type") or _TYPE
    parameters = table.table("params")
    # Whatever stands there counts as true: runtime/engine.py, _configure_basic_optimizer.
    torch_adam = parameters is not None and bool(parameters.raw("torch_adam"))
    momentum = None if parameters is None else parameters.rate("momentum")
    source = f"{table.name('type')}: {kind}"
    chosen = by_deepspeed_type(kind.lower(), torch_adam=torch_adam)
    if chosen is None:
        raise other_optimizer(reading, source)
    reading.say("optimizer", (momentum and chosen.with_momentum) or chosen.name, source)
