"""ms-swift's YAML or JSON, of `swift sft --config`: TrainingArguments and its own.

Meanings and defaults, of 4.5.2 (3602360a): swift arguments/{sft_args,tuner_args}.py,
arguments/base_args/{model,quant}_args.py, trainers/arguments.py (checkpoints unless told not to, accumulates to 16
samples).
"""

import math

from gpu_plan.planner.from_config.formats.deepspeed import read_deepspeed
from gpu_plan.planner.from_config.formats.shared import (
    REENTRANT,
    other_optimizer,
    read_attention,
    read_lora,
    read_mixed,
    read_optimizer,
    read_weights_dtype,
    say_adapters,
    say_otherwise,
    say_reentrant,
    say_stack,
    use_reentrant,
)
from gpu_plan.planner.from_config.formats.trainers.trainer import read_parallel, read_rest
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import first, given, together
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = first(given("sft_type", "train_type", "tuner_type"), together("model", "dataset", "torch_dtype"))

_WHOSE = "ms-swift"
_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")
"""swift/config/*.json; their buckets are `auto`."""
_LENGTHS = ("max_length", "max_model_len")
_OTHERWISE = {
    "use_dora": "planned as plain LoRA",
    "modules_to_save": "planned without",
    "target_parameters": "planned without",
    "trainable_parameters": "planned with all parameters trained",
    "freeze_parameters": "planned with all parameters trained",
    "sequence_parallel_size": "planned with whole sequences",
    "lorap_lr_ratio": "planned with one rate for all",
    "eval_use_evalscope": "planned without what is generated to be judged",
}


def _evaluation(reading: Reading, table: Table) -> None:
    """With a set for it ms-swift evaluates when it saves unless told otherwise, one sample at a time.

    arguments/sft_args.py (_init_eval_strategy), arguments/base_args/data_args.py (_init_val_dataset_exists; a share of
    a stream is none), trainers/arguments.py (per_device_eval_batch_size).
    """
    share, size = table.peek("split_dataset_ratio"), table.count("per_device_eval_batch_size")
    key = next((key for key in ("eval_strategy", "save_strategy") if table.has(key)), "save_strategy")
    word = "no" if table.peek(key) is False else str(table.peek(key) or "steps").lower()
    table.raw("eval_strategy")
    some = isinstance(share, int | float) and share > 0 and not table.peek("streaming")
    own = next((name for name in ("val_dataset", "cached_val_dataset") if table.peek(name)), None)
    if word in ("no", "none") or not (some or own):
        return
    source = f"split_dataset_ratio: {share}" if some and own is None else str(own)
    reading.set("eval.batch", size or 1, f"{source}, {_batch_of_evaluation(size)}")


def _batch_of_evaluation(size: int | None) -> str:
    return f"per_device_eval_batch_size: {size}" if size else f"{_WHOSE}'s default"


def read(reading: Reading) -> None:
    """Notes what `swift sft` would do."""
    table = reading.table
    say_stack(reading, Stack.TRAINER, "ms-swift runs transformers' Trainer")
    reading.model = table.word("model")
    for key in _LENGTHS:
        length = table.count(key)
        if length is not None and reading.value("seq-len") is None:
            reading.say("seq-len", length, f"{key}: {length}")
    dtype = table.word("torch_dtype")
    read_mixed(reading, table, "fp16" if dtype in ("float16", "float32") else "bf16", f"{_WHOSE}, torch_dtype {dtype},")
    if table.flag("use_galore"):
        raise other_optimizer(reading, "use_galore: true")
    read_optimizer(reading, table, "optim", "adamw_torch_fused", "TrainingArguments")
    on = table.flag("gradient_checkpointing")
    source = f"{_WHOSE}'s default" if on is None else f"gradient_checkpointing: {str(on).lower()}"
    if on is not False and not _fsdp_wraps(table):
        reading.say("checkpointing", "full", source)
    _parallel(reading, table)
    if reading.value("checkpointing") is None:
        reading.say("checkpointing", "none", source)
    elif not _fsdp_wraps(table):
        # trainers/mixin.py (_fix_gradient_checkpointing): not on several devices without DeepSpeed or FSDP
        alone = reading.count == 1 or not reading.plain
        given = use_reentrant(table.raw("gradient_checkpointing_kwargs"))
        say_reentrant(reading, given, REENTRANT, default=alone, whose=_WHOSE)
    _batch(reading, table)
    _adapters(reading, table)
    read_attention(reading, table, "attn_impl")
    say_otherwise(reading, table, _OTHERWISE)
    read_rest(reading, table, evaluates=False)
    _evaluation(reading, table)
    read_weights_dtype(reading, dtype, f"torch_dtype: {dtype}")


def _fsdp_wraps(table: Table) -> bool:
    return table.peek("fsdp") == "fsdp2"


def _parallel(reading: Reading, table: Table) -> None:
    """A preset by its name, or what the Trainer takes."""
    name, fsdp = table.peek("deepspeed"), table.peek("fsdp")
    if name in _PRESETS:
        table.raw("deepspeed")
        stage, _, offload = str(name).removeprefix("zero").partition("_")
        devices = {"offload_optimizer": {"device": "cpu", "pin_memory": True}} if offload else {}
        if offload and stage == "3":
            devices["offload_param"] = {"device": "cpu", "pin_memory": True}
        preset = {"zero_optimization": {"stage": int(stage), **devices}, "bf16": {"enabled": "auto"}}
        read_deepspeed(reading, reading.inner(preset, "deepspeed"))
    elif fsdp == "fsdp2":  # swift/config/fsdp2.json
        table.raw("fsdp")
        reading.say("strategy", strategy_by(Engine.FSDP2).name, "fsdp: fsdp2")
        reading.say("offload", "none", "fsdp: fsdp2")
        reading.say("checkpointing", "full", "fsdp: fsdp2 checkpoints")
    else:
        read_parallel(reading, table)


def _batch(reading: Reading, table: Table) -> None:
    micro, steps = table.count("per_device_train_batch_size"), table.count("gradient_accumulation_steps")
    source = f"per_device_train_batch_size: {micro}" if micro else f"{_WHOSE}'s default"
    reading.say("micro-batch", micro or 1, source)
    if steps:
        reading.say("grad-accum", steps, f"gradient_accumulation_steps: {steps}")
    elif table.peek("rlhf_type") == "grpo":
        reading.say("grad-accum", 1, f"{_WHOSE}'s default for GRPO")
    elif reading.count is not None:
        reading.say(
            "grad-accum", max(1, math.ceil(16 / (micro or 1) / reading.count)), f"{_WHOSE} accumulates to 16 samples"
        )


def _adapters(reading: Reading, table: Table) -> None:
    plain = adapters_on(quantised=False)
    key = next((key for key in ("tuner_type", "train_type", "sft_type") if table.has(key)), "tuner_type")
    kind = table.word(key) or plain
    bits, method = table.count("quant_bits"), table.word("quant_method")
    if kind == "full":
        if bits:
            raise reading.contradiction(f"{key}: full with quant_bits: {bits}: only adapters train so")
        return
    if kind != plain:
        reading.approximate(f"{key}: {kind}: planned as {plain}")
    packed = bits in (4, 8) and (method or "bnb") == "bnb"
    if bits and not packed:
        reading.approximate(f"quant_method: {method}, quant_bits: {bits}: planned with a 16-bit base")
    source = f"{key}: {kind}" if table.has(key) else f"{_WHOSE}'s default"
    say_adapters(reading, source, quantised=packed, because=f"quant_bits: {bits}")
    if packed and bits == 8:
        reading.set("quant.base", "int8", "quant_bits: 8")
    elif packed:
        reading.set("quant.double", table.flag("bnb_4bit_use_double_quant") is not False, f"{_WHOSE}'s default")
    read_lora(
        reading, table, rank="lora_rank", dropout="lora_dropout", default_rank=8, whose=_WHOSE, default_dropout=0.05
    )
    targets = table.names("target_modules") or ("all-linear",)
    reading.say("lora-targets", ",".join(targets), f"target_modules: {','.join(targets)}")
