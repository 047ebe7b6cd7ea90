"""LLaMA-Factory's v1 YAML: plugins by name in tables, a loop of its own.

Meanings and defaults, of 2026-08: llamafactory/v1/config/{model,training}_args.py, v1/core/base_trainer.py and
model_engine.py (fp32 weights where all are trained, torch's AdamW), v1/plugins/trainer_plugins/distributed/fsdp2.py.
"""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.from_config.formats.deepspeed import read_deepspeed
from gpu_plan.planner.from_config.formats.shared import (
    clipping,
    other_optimizer,
    read_attention,
    read_optimizer,
    say_adapters,
    say_mixed,
    say_otherwise,
    say_stack,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import Content, keys
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.stacks.registry import Stack

_WHOSE = "LLaMA-Factory v1"
_PLUGINS = ("dist_config", "kernel_config", "quant_config", "peft_config", "init_config", "optim_config")


def _signs(content: Content) -> tuple[str, ...]:
    """Its plugins' tables beside the name of a model."""
    return keys(*_PLUGINS)(content) if "model" in content else ()


SIGNS = _signs


def read(reading: Reading) -> None:
    """Notes what its `sft` trainer would do."""
    table = reading.table
    if not table.has("train_dataset"):
        raise reading.contradiction("there is no train_dataset: nothing is trained")
    if (table.count("cp_size") or 1) > 1:
        raise UsageError(
            f"{table.where}: cp_size above 1 is not planned as LLaMA-Factory does it: say the job with the options of"
            " `plan MODEL`, of which --cp is the nearest"
        )
    table.raw("cp_mode")  # of use beside cp_size alone
    kind = table.word("model_class") or "llm"
    if kind != "llm":
        raise UsageError(
            f"{table.where}: model_class: {kind} is no language model, and such alone are planned from this kind: say"
            " the job with the options of `plan MODEL`"
        )
    say_stack(reading, Stack.ACCELERATE, f"{_WHOSE} shards as Accelerate does")
    reading.model = table.word("model")
    length, micro = table.count("cutoff_len"), table.count("micro_batch_size")
    reading.say("seq-len", length or 2048, f"cutoff_len: {length}" if length else f"{_WHOSE}'s default")
    reading.say("micro-batch", micro or 1, f"micro_batch_size: {micro}" if micro else f"{_WHOSE}'s default")
    whole = table.count("global_batch_size")
    if whole:
        reading.say("global-batch", whole, f"global_batch_size: {whole}")
    else:
        reading.say("grad-accum", 1, f"{_WHOSE}: a global batch of one micro batch on each rank")
    mixed = table.flag("bf16")
    say_mixed(reading, "no" if mixed is False else "bf16", "bf16: false" if mixed is False else f"{_WHOSE}'s default")
    off = table.flag("enable_activation_checkpointing") is False
    source = "enable_activation_checkpointing: false" if off else f"{_WHOSE} checkpoints unless told not to"
    reading.say("checkpointing", "none" if off else "full", source)
    _spread(reading, table)
    _optimizer(reading, table)
    _adapters(reading, table)
    if table.has("flash_attn"):
        read_attention(reading, table, "flash_attn")
    else:
        reading.say("attention", "sdpa", f"{_WHOSE}'s default")
    _kernels(reading, table)
    norm = table.rate("max_grad_norm")
    clipping(reading, 1.0 if norm is None else norm, "max_grad_norm")
    strategy = table.word("batching_strategy") or "normal"
    if strategy != "normal":
        reading.approximate(f"batching_strategy: {strategy}: planned with rows of cutoff_len")


def _plugin(table: Table, key: str) -> Table | None:
    """A plugin's table; its name may stand for it."""
    value = table.peek(key)
    if isinstance(value, Mapping):
        return table.table(key)
    name = table.word(key)
    return None if name is None else Table({"name": name}, table.where, f"{key}.")


def _spread(reading: Reading, table: Table) -> None:
    inner = _plugin(table, "dist_config")
    name = None if inner is None else inner.word("name")
    if inner is None or name is None:
        reading.plain = True
    elif name == "fsdp2":
        reading.say("strategy", strategy_by(Engine.FSDP2).name, "dist_config.name: fsdp2")
        offload = bool(inner.flag("offload_params"))
        reading.say("offload", "all" if offload else "none", f"dist_config.offload_params: {str(offload).lower()}")
        keeps = inner.flag("reshard_after_forward")
        if keeps is not None:
            reading.set("fsdp.reshard_after_forward", keeps, f"dist_config.reshard_after_forward: {str(keeps).lower()}")
    elif name == "deepspeed":
        path = inner.word("config_file")
        if path is None:
            raise inner.wrong("config_file", "the name of DeepSpeed's file")
        read_deepspeed(reading, reading.other(path, "dist_config.config_file"))
    else:
        raise reading.contradiction(f"dist_config.name: {name} is not planned for: fsdp2 and deepspeed are")
    if (table.count("mp_replicate_size") or 1) > 1:
        raise reading.contradiction("mp_replicate_size above 1 is not planned for")
    # v1/accelerator/interface.py: each must be the number of processes where nothing replicates and no cp_size is
    sizes = {key: size for key in ("mp_shard_size", "dp_size") if (size := table.count(key))}
    if len(set(sizes.values())) > 1:
        raise reading.contradiction("mp_shard_size and dp_size are each the number of processes, and differ")
    reading.processes = next(iter(sizes.values()), None)


def _optimizer(reading: Reading, table: Table) -> None:
    inner = _plugin(table, "optim_config")
    if inner is None:
        read_optimizer(reading, Table({}, table.where), "optim", "adamw_torch", _WHOSE)
    else:
        raise other_optimizer(reading, f"optim_config.name: {inner.word('name')}")


def _adapters(reading: Reading, table: Table) -> None:
    inner, packed = _plugin(table, "peft_config"), _plugin(table, "quant_config")
    if inner is None:
        if packed is not None:
            raise reading.contradiction("quant_config without peft_config: only adapters train so")
        return
    name = inner.word("name")
    if name != "lora":
        reading.approximate(f"peft_config.name: {name}: planned with all parameters trained")
        return
    bits = None if packed is None else packed.count("quantization_bit") or 4
    say_adapters(reading, "peft_config.name: lora", quantised=bits is not None, because=f"quant_config: {bits} bits")
    if bits == 8:
        reading.set("quant.base", "int8", "quant_config: 8 bits")
    rank, share = inner.count("r"), inner.rate("lora_dropout")
    reading.say("lora-rank", rank or 8, f"peft_config.r: {rank}" if rank else f"{_WHOSE}'s default")
    share = 0.05 if share is None else share
    if share:
        reading.set("lora.dropout", share, f"peft_config.lora_dropout: {share}")
    targets = inner.names("target_modules") or ("all",)
    every = targets == ("all",)
    reading.say(
        "lora-targets", "all-linear" if every else ",".join(targets), f"peft_config.target_modules: {targets[0]}"
    )
    say_otherwise(reading, inner, {"use_dora": "planned as plain LoRA", "modules_to_save": "planned without"})


def _kernels(reading: Reading, table: Table) -> None:
    inner = _plugin(table, "kernel_config")
    name = None if inner is None else inner.word("name")
    if name == "liger_kernel":
        reading.set("kernels.liger", True, "kernel_config.name: liger_kernel")
        reading.say("fused-loss", False, "kernel_config: the trainer asks for logits")
