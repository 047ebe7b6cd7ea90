"""unsloth's YAML, of `unsloth train --config` and its Studio: tables `training` and `lora`.

Meanings and defaults, of 2026-08 (015bdef0): unsloth_cli/config.py (TrainingConfig, LoraConfig),
studio/backend/core/training/trainer.py (8-bit AdamW, bfloat16 where there is), studio/backend/assets/configs.
"""

from gpu_plan.planner.from_config.formats.rows import say_rows
from gpu_plan.planner.from_config.formats.shared import (
    read_optimizer,
    say_adapters,
    say_mixed,
    say_otherwise,
    say_stack,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import Content, table_of
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.workload.stacks.registry import Stack

_WHOSE = "unsloth"
_PARTS = (
    "finetune_vision_layers", "finetune_language_layers", "finetune_attention_modules", "finetune_mlp_modules",
)  # fmt: skip
_TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


def _signs(content: Content) -> tuple[str, ...]:
    """`training` and `lora` as tables, with keys in the first that others write otherwise."""
    training = table_of(content, "training")
    own = [key for key in ("batch_size", "max_seq_length", "train_on_completions") if key in training]
    return tuple(f"training.{key}" for key in own) if len(own) == 3 and table_of(content, "lora") else ()


SIGNS = _signs


def read(reading: Reading) -> None:
    """Notes what `unsloth train` would do."""
    table = reading.table
    say_stack(reading, Stack.UNSLOTH, "unsloth runs transformers' Trainer")
    reading.model = table.word("model")
    training, lora = table.table("training"), table.table("lora")
    assert training is not None
    assert lora is not None
    micro, steps = training.count("batch_size"), training.count("gradient_accumulation_steps")
    length = training.count("max_seq_length")
    reading.say("micro-batch", micro or 2, f"training.batch_size: {micro}" if micro else f"{_WHOSE}'s default")
    source = f"training.gradient_accumulation_steps: {steps}" if steps else f"{_WHOSE}'s default"
    reading.say("grad-accum", steps or 4, source)
    reading.say("seq-len", length or 2048, f"training.max_seq_length: {length}" if length else f"{_WHOSE}'s default")
    say_mixed(reading, "bf16", f"{_WHOSE}: bfloat16 where the GPU has it")
    read_optimizer(reading, training, "optim", "adamw_8bit", _WHOSE)
    _checkpointing(reading, training)
    _adapters(reading, training, lora)
    say_rows(reading, training)
    every = training.rate("eval_steps")
    if every:
        # studio/backend/core/training/trainer.py: where a set for it is chosen, by batches of the training's size
        reading.set("eval.batch", micro or 2, f"training.eval_steps: {every:g}, by batches of the training's size")
    reading.plain = True
    reading.approximate(f"{_WHOSE}: its own kernels and loss are planned as transformers' and peft's")
    for key in ("audio_type", "audio_input"):
        if table.has(key):
            reading.approximate(
                f"{key}: {table.word(key) if key == 'audio_type' else 'true'}: planned is the text alone"
            )


def _checkpointing(reading: Reading, training: Table) -> None:
    value = training.raw("gradient_checkpointing")
    word = _WHOSE if value is None else str(value).lower()
    source = f"training.gradient_checkpointing: {word}" if value is not None else f"{_WHOSE}'s default"
    reading.say("checkpointing", "none" if word in ("false", "none") else "full", source)
    if word == _WHOSE:
        reading.approximate(f"{source}: what is kept is offloaded there, planned is that it stays on the GPU")


def _adapters(reading: Reading, training: Table, lora: Table) -> None:
    kind = training.word("training_type") or "lora"
    four = training.flag("load_in_4bit")
    if kind.lower().startswith("full"):
        for key in lora.listed():
            lora.raw(key)  # of no use where no adapters are
        return
    because = "training.load_in_4bit: true" if four else f"training.load_in_4bit: {_WHOSE}'s default"
    say_adapters(reading, f"training.training_type: {kind}", quantised=four is not False, because=because)
    if four is not False:
        reading.set("quant.double", True, f"{_WHOSE} quantises the scales as well")
    if lora.flag("use_loftq") and four is not False:  # unsloth/models/llama.py: get_peft_model
        raise reading.contradiction("lora.use_loftq: true with a base of 4 bits: unsloth refuses it, set load_in_4bit")
    rank, share = lora.count("lora_r"), lora.rate("lora_dropout")
    reading.say("lora-rank", rank or 64, f"lora.lora_r: {rank}" if rank else f"{_WHOSE}'s default")
    if share:
        reading.set("lora.dropout", share, f"lora.lora_dropout: {share}")
    targets = ",".join(lora.names("target_modules"))
    reading.say("lora-targets", targets or _TARGETS, "lora.target_modules" if targets else f"{_WHOSE}'s default")
    if lora.flag("use_dora"):
        reading.approximate("lora.use_dora: true: planned as plain LoRA")
    for key in _PARTS:
        if lora.flag(key) is False:
            reading.approximate(f"lora.{key}: false: planned with adapters on all that the targets name")
    say_otherwise(reading, lora, {"vision_all_linear": "planned is the text alone, by the targets that are named"})
