"""Files of DeepSpeed and of Accelerate, which other families name or hold in place of their own."""

from pathlib import Path

from benchmarks.corpus.configurations.families.reading import WORLD, Content, Read, content, take_world, truth


def take_zero(read: Read, table: Content, *, alone: bool) -> None:
    """A DeepSpeed table; `alone` where no Trainer or Accelerate fills it in."""
    zero = table.get("zero_optimization") or {}
    zero = {"stage": 1} if zero is True else zero
    stage = zero.get("stage", 0)
    read.options["strategy"] = f"zero{stage}" if stage else ("single" if read.options.get("processes") == 1 else "ddp")
    devices = [(zero.get(key) or {}).get("device", "none") for key in ("offload_optimizer", "offload_param")]
    devices[1] = devices[1] if stage == 3 else "none"  # runtime/engine.py hands it to stage 3 alone
    if zero.get("cpu_offload") and devices[0] == "none":
        devices[0] = "cpu"
    if stage:
        read.options["offload"] = (
            "nvme"
            if "nvme" in devices
            else "all"
            if devices[1] == "cpu"
            else "optimizer"
            if devices[0] == "cpu"
            else "none"
        )
    for key in ("zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size"):
        if zero.get(key) not in (None, False, 1):
            read.said.append(key)
    kinds = {kind: (table.get(kind) or {}).get("enabled") for kind in ("bf16", "fp16", "bfloat16")}
    if True in kinds.values():
        read.options["precision"] = "fp16-mixed" if kinds["fp16"] is True else "bf16-mixed"
    elif alone and "auto" not in kinds.values() and "auto" not in table.values():
        read.options["precision"] = "fp32"
    for option, key in (
        ("micro-batch", "train_micro_batch_size_per_gpu"),
        ("grad-accum", "gradient_accumulation_steps"),
    ):
        if isinstance(table.get(key), int):
            read.options[option] = table[key]
    kind = (table.get("optimizer") or {}).get("type")
    if kind and kind.lower() not in ("adam", "adamw"):
        read.said.append(kind)


def take_named(read: Read, other: str, root: Path, path: str) -> bool:
    """A DeepSpeed file that this one names: as seen from a folder above it, up to the repository's root."""
    below = [(root / path).parent, *(root / path).parent.parents]
    places = [folder / other for folder in below if folder.is_relative_to(root)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        read.refused = "the file that it names is not there"
        return False
    take_zero(read, content(found), alone=False)
    return True


def deepspeed(table: Content, root: Path, path: str) -> Read:
    """A file of DeepSpeed's own. Eight processes: what does not add up to its global batch is refused."""
    read = Read(kind="deepspeed")
    if "compute_environment" in table or "distributed_type" in table:
        return accelerate(table, root, path)
    take_zero(read, table, alone=True)
    sizes = [
        table.get(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    ]
    if all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1] * sizes[2] * WORLD:
        read.refused = "the batch does not add up on eight GPUs"
    compression = table.get("compression_training") or {}
    for inner in compression.values():
        shared = inner.get("shared_parameters", inner)
        if truth(shared.get("enabled")):
            read.said.append("compression_training")
            break
    for key in ("data_efficiency", "progressive_layer_drop"):
        if truth((table.get(key) or {}).get("enabled")):
            read.said.append(key)
    return read


def take_fsdp(read: Read, table: Content, default: int) -> None:
    plain = {key.removeprefix("fsdp_"): value for key, value in table.items()}
    version = int(plain.get("version", default))
    sharding = str(plain.get("sharding_strategy", "FULL_SHARD")).upper()
    names = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD"}
    sharding = names.get(sharding, sharding)
    spread = "fsdp" if version == 2 or sharding == "SHARD_GRAD_OP" else "fsdp1"
    read.options["strategy"] = "hsdp" if version == 1 and sharding.startswith("HYBRID") else spread
    read.options["offload"] = "all" if truth(plain.get("offload_params")) else "none"
    if truth(plain.get("activation_checkpointing")):
        read.options["checkpointing"] = "full"


def accelerate(table: Content, root: Path, path: str) -> Read:
    """`accelerate launch --config_file`."""
    read = Read(kind="accelerate")
    kind = str(table.get("distributed_type", "NO")).upper()
    kind = "NO" if kind == "FALSE" else kind
    if table.get("num_processes") is not None or kind == "NO":
        read.options["processes"] = table.get("num_processes") or 1
    parallel = table.get("parallelism_config") or {}
    if (parallel.get("parallelism_config_tp_size") or 1) > 1:
        read.refused = "tp above 1"
        return read
    shared = [parallel.get(f"parallelism_config_{name}_size") or 1 for name in ("cp", "sp")]
    if max(shared) > 1:  # a ring under FSDP2, Ulysses under ZeRO-3: accelerate utils/dataclasses.py
        read.options["cp"] = max(shared)
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"):
        read.refused = kind
        return read
    precision = str(table.get("mixed_precision") or "no")
    precision = "no" if precision == "False" else precision
    named = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp8": "fp8-mixed"}[precision]
    if kind == "DEEPSPEED":
        inner = table["deepspeed_config"]
        other = inner.get("deepspeed_config_file")
        if other:
            take_named(read, other, root, path)
            return read
        stage = inner.get("zero_stage", 2)
        take_world(read, f"zero{stage}" if stage else None)
        devices = [inner.get(f"offload_{name}_device", "none") for name in ("optimizer", "param")]
        if stage:
            read.options["offload"] = "all" if devices[1] == "cpu" else "optimizer" if devices[0] == "cpu" else "none"
        if "gradient_accumulation_steps" in inner:
            read.options["grad-accum"] = inner["gradient_accumulation_steps"]
        if "mixed_precision" in table:
            read.options["precision"] = named
        return read
    read.options["precision"] = named
    if kind == "FSDP":
        take_fsdp(read, table["fsdp_config"], 1)
        if (parallel.get("parallelism_config_dp_replicate_size") or 1) > 1:
            read.options["strategy"] = "hsdp"
    else:
        take_world(read)
    return read


def fragment(table: Content, root: Path, path: str) -> Read:
    """ms-swift's `fsdp` presets: the Trainer's words and its table, in a file of their own."""
    read = Read(kind="trainer")
    if "compute_environment" in table:
        return accelerate(table, root, path)
    take_fsdp(read, table["fsdp_config"], 2)
    if "offload" in str(table.get("fsdp")):
        read.options["offload"] = "all"
    return read
