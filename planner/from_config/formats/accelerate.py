"""Accelerate's YAML or JSON file. Meanings: accelerate commands/config/config_args.py, commands/launch.py (1.15)."""

from collections.abc import Mapping

from gpu_plan.planner.from_config.formats.deepspeed import read_deepspeed, say_swapping
from gpu_plan.planner.from_config.formats.fsdp import read_fsdp, version_of
from gpu_plan.planner.from_config.formats.shared import clipping, compiled, settings_of
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.named import listed
from gpu_plan.planner.workload.precisions import by_launcher, launcher_words
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = ("compute_environment", "distributed_type", "num_machines", "deepspeed_config", "main_training_function")

_DEVICES = {"none": None, "cpu": "cpu", "nvme": "nvme"}


def read(reading: Reading) -> None:
    """Notes what `accelerate launch --config_file` would do with the file."""
    table = reading.table
    environment = table.word("compute_environment") or "LOCAL_MACHINE"
    if environment != "LOCAL_MACHINE":
        reading.approximate(f"compute_environment: {environment}: planned as machines of one's own")
    kind = (_word(table, "distributed_type") or "NO").upper().removeprefix("DISTRIBUTEDTYPE.")
    reading.say("stack", Stack.ACCELERATE, "an Accelerate configuration")
    _count(reading, table, kind)
    if kind == "DEEPSPEED":
        _deepspeed(reading, table)
    elif kind == "FSDP":
        fsdp = table.table("fsdp_config")
        if fsdp is None:
            raise reading.contradiction("distributed_type is FSDP, and there is no fsdp_config")
        read_fsdp(reading, fsdp, version_of(fsdp, 1))
    elif kind in ("MULTI_GPU", "MULTI_CPU", "NO"):
        reading.plain = True
    elif kind == "MEGATRON_LM":
        raise reading.contradiction(
            "distributed_type MEGATRON_LM is Accelerate's old way into Megatron-LM, which is not planned: plan MODEL"
            " --strategy megatron plans Megatron-core's own trainer"
        )
    else:
        raise reading.contradiction(f"distributed_type {kind} is not planned for: GPUs and CPUs are")
    precision = _word(table, "mixed_precision")
    if precision is not None or kind != "DEEPSPEED":
        _precision(reading, table, precision)
    _parallel(reading, table.table("parallelism_config"), kind)
    dynamo = table.table("dynamo_config")
    if dynamo is not None and (_word(dynamo, "dynamo_backend") or "NO").upper() != "NO":
        compiled(reading, "dynamo_config")


def _word(table: Table, key: str) -> str | None:
    """A word; YAML reads a bare `no` as false."""
    if table.peek(key) is False:
        table.raw(key)
        return "no"
    return table.word(key)


def _count(reading: Reading, table: Table, kind: str) -> None:
    reading.nodes = table.count("num_machines")
    reading.processes = table.count("num_processes")
    reading.cpu = bool(table.flag("use_cpu")) or kind == "MULTI_CPU"
    if reading.processes is not None and reading.processes % (reading.nodes or 1):
        raise reading.contradiction(
            f"num_processes {reading.processes} do not spread evenly over num_machines {reading.nodes}"
        )
    if kind == "NO":
        if (reading.processes or 1) > 1:  # commands/launch.py: launch_command ends in simple_launcher
            reading.notes.append(f"distributed_type NO is one process, though num_processes is {reading.processes}")
        reading.processes = 1
    if reading.cpu and kind in ("DEEPSPEED", "FSDP"):
        reading.cpu = False  # commands/launch.py: launch_command asks for --cpu alone before those launchers
        reading.notes.append(f"use_cpu is true: Accelerate's launcher of distributed_type {kind} does not heed it")


def _precision(reading: Reading, table: Table, name: str | None) -> None:
    chosen = by_launcher((name or "no").lower())
    if chosen is None:
        raise table.wrong("mixed_precision", listed(launcher_words()))
    reading.say("precision", chosen, f"mixed_precision: {name}" if name else "Accelerate's default")
    if chosen.is_float8:
        inner = table.table("fp8_config")
        key = "fp8_backend" if inner is not None and inner.has("fp8_backend") else "backend"
        backend = None if inner is None else inner.word(key)
        if backend is not None and backend.upper() == "TE":
            reading.set("fp8.backend", "te", f"fp8_config.{key}: {backend}")
            return
        if (backend or "AO").upper() not in ("AO", "TORCHAO"):
            reading.approximate(f"fp8_config.{key}: {backend}: planned with torchao's float8")
        gathers = None if inner is None else inner.flag("fp8_enable_fsdp_float8_all_gather")
        if gathers is not None and "fp8.all_gather" in settings_of(reading):
            reading.set("fp8.all_gather", gathers, f"fp8_enable_fsdp_float8_all_gather: {str(gathers).lower()}")


def _deepspeed(reading: Reading, table: Table) -> None:
    """The plugin's own keys, or DeepSpeed's file, which Accelerate refuses beside them."""
    inner = table.table("deepspeed_config")
    if inner is None:
        raise reading.contradiction("distributed_type is DEEPSPEED, and there is no deepspeed_config")
    path = inner.word("deepspeed_config_file")
    if path is not None:
        both = [
            key for key in ("zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_clipping")
            if inner.has(key)
        ]  # fmt: skip
        if both:
            raise reading.contradiction(
                f"deepspeed_config.{both[0]} beside deepspeed_config_file: Accelerate takes it from the file alone"
            )
        read_deepspeed(reading, reading.other(path, "deepspeed_config.deepspeed_config_file"))
        return
    stage = inner.count("zero_stage", 0)
    stage = 2 if stage is None else stage
    if stage == 0:
        reading.plain = True
        reading.approximate("zero_stage: 0: planned without DeepSpeed's own buffers, as DDP")
    elif stage > 3:
        raise inner.wrong("zero_stage", "0 to 3")
    else:
        reading.say(
            "strategy", strategy_by(Engine.DEEPSPEED, stage=stage).name, f"deepspeed_config.zero_stage: {stage}"
        )
        _offload(reading, inner, stage)
    steps = inner.count("gradient_accumulation_steps")
    if steps is not None:
        reading.say("grad-accum", steps, f"deepspeed_config.gradient_accumulation_steps: {steps}")
    clipping(reading, inner.rate("gradient_clipping"), "deepspeed_config.gradient_clipping")


def _offload(reading: Reading, inner: Table, stage: int) -> None:
    devices = []
    for key in ("offload_optimizer_device", "offload_param_device"):
        name = (inner.word(key) or "none").lower()
        if name not in _DEVICES:
            raise inner.wrong(key, "cpu, nvme or none")
        devices.append(_DEVICES[name])
    optimizer, parameters = devices
    if parameters and stage != 3:
        reading.notes.append(
            f"offload_param_device: {parameters} needs zero_stage 3, not {stage}: DeepSpeed ignores it"
        )
        parameters = None
    if "nvme" in (optimizer, parameters) and stage == 3:
        say_swapping(reading, optimizer, parameters, "an offload device is nvme")
        for key in ("offload_optimizer_nvme_path", "offload_param_nvme_path"):
            path = inner.word(key)
            if path not in (None, "none"):
                reading.set("zero.nvme_path", path, f"{key}: {path}")
    elif parameters:
        reading.say("offload", "all", "offload_param_device: cpu")
        if optimizer is None:
            reading.approximate("parameters are offloaded without the optimizer: planned with both in host memory")
    else:
        source = f"offload_optimizer_device: {optimizer or 'none'}"
        reading.say("offload", "optimizer" if optimizer else "none", source)


def _parallel(reading: Reading, table: Table | None, kind: str) -> None:
    """accelerate parallelism_config.py: ParallelismConfig."""
    if table is None:
        return
    sizes = {
        name: table.count(f"parallelism_config_{name}_size") or 1
        for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    }
    _shared_tokens(reading, table, kind, sizes)
    product = sizes["dp_replicate"] * sizes["dp_shard"] * sizes["cp"] * sizes["tp"]
    if reading.processes is not None and product not in (1, reading.processes) and sizes["sp"] == 1:
        cut = "".join(f" x {name}_size {sizes[name]}" for name in ("cp", "tp") if sizes[name] > 1)
        raise reading.contradiction(
            f"dp_replicate_size {sizes['dp_replicate']} x dp_shard_size {sizes['dp_shard']}{cut} is {product}, and"
            f" num_processes is {reading.processes}"
        )
    if sizes["dp_replicate"] > 1 and kind == "FSDP":
        if reading.value("strategy") == strategy_by(Engine.FSDP1).name:
            raise reading.contradiction("dp_replicate_size needs fsdp_version 2")
        reading.said.pop("strategy", None)
        source = f"dp_replicate_size: {sizes['dp_replicate']}"
        reading.say("strategy", strategy_by(Engine.FSDP2, replicates=True).name, source)
        reading.say("dp-replicate", sizes["dp_replicate"], source)
    if sizes["tp"] > 1:
        _shared_layers(reading, kind, sizes)


def _shared_layers(reading: Reading, kind: str, sizes: Mapping[str, int]) -> None:
    """`tp_size`: transformers' own plan of the class, alone or beside FSDP2 (state.py: it refuses the others)."""
    source = f"parallelism_config_tp_size: {sizes['tp']}"
    alone = sizes["dp_replicate"] == sizes["dp_shard"] == sizes["cp"] == 1
    if kind == "FSDP" and reading.value("strategy") == strategy_by(Engine.FSDP1).name:
        raise reading.contradiction(f"{source} needs fsdp_version 2")
    if kind != "FSDP" and not alone:
        raise reading.contradiction(f"{source} beside other degrees needs distributed_type FSDP of version 2")
    if kind != "FSDP":
        reading.said.pop("strategy", None)
        reading.plain = False
        reading.say("strategy", strategy_by(Engine.DTENSOR, stage=0).name, source)
    reading.say("tp", sizes["tp"], source)


def _shared_tokens(reading: Reading, table: Table, kind: str, sizes: Mapping[str, int]) -> None:
    """`cp_size` is torch's ring beside FSDP2, `sp_size` DeepSpeed's Ulysses beside ZeRO; never both."""
    rotation = table.word("parallelism_config_cp_comm_strategy")
    for key in ("cp_backend", "sp_backend", "sp_seq_length", "sp_seq_length_is_variable"):
        table.raw(f"parallelism_config_{key}")  # each has one value here, or says nothing of memory
    attention = table.word("parallelism_config_sp_attn_implementation")
    for name, engine, words in (("cp", "FSDP", "fsdp_version 2"), ("sp", "DEEPSPEED", "DeepSpeed")):
        if sizes[name] == 1:
            continue
        if kind != engine or reading.value("strategy") == strategy_by(Engine.FSDP1).name:
            raise reading.contradiction(f"parallelism_config_{name}_size {sizes[name]} needs {words}")
        reading.say("cp", sizes[name], f"parallelism_config_{name}_size: {sizes[name]}")
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        raise reading.contradiction("cp_size and sp_size exclude each other")
    if sizes["cp"] > 1 and rotation == "alltoall":
        reading.set("cp.rotation", rotation, "parallelism_config_cp_comm_strategy: alltoall")
    if sizes["sp"] > 1 and attention == "flash_attention_2":
        reading.say("attention", "flash", "parallelism_config_sp_attn_implementation: flash_attention_2")
