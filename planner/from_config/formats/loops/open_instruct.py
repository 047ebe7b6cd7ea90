"""open-instruct's YAML, of `open_instruct/finetune.py`: Accelerate runs the loop, defaults are not the Trainer's.

Meanings and defaults, of 0.3.0 (e6c3044a): open_instruct/finetune.py (FlatArguments, main),
open_instruct/model_utils.py (detect_hf_attn_implementation). How the model is spread is said by the launch command.
"""

from gpu_plan.planner.from_config.formats.shared import (
    clipping,
    say_adapters,
    say_component_optimizer,
    say_mixed,
    say_otherwise,
    say_stack,
)
from gpu_plan.planner.from_config.reading import Reading, of_several_models
from gpu_plan.planner.from_config.signs import given
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = given(
    "use_flash_attn", "use_slow_tokenizer", "checkpointing_steps", "dataset_mixer_list", "hf_metadata_dataset",
    "with_tracking", "add_bos",
)  # fmt: skip

_WHOSE = "FlatArguments"
_TARGETS = "q_proj,o_proj,v_proj,k_proj,gate_proj,up_proj,down_proj"
_OTHERWISE = {
    "sequence_parallel_size": "planned with whole sequences",
    "load_balancing_loss": "planned with the model's own loss",
    "additional_model_arguments": "planned without",
}


def read(reading: Reading) -> None:
    """Notes what `accelerate launch open_instruct/finetune.py` would do."""
    table = reading.table
    if table.has("num_epochs"):  # dpo_tune_cache.py's name for it; finetune.py has num_train_epochs
        raise of_several_models(f"{table.where}: preference training (num_epochs)")
    say_stack(reading, Stack.ACCELERATE, "finetune.py runs Accelerate")
    reading.model = table.word("model_name_or_path")
    micro, steps = table.count("per_device_train_batch_size"), table.count("gradient_accumulation_steps")
    length = table.count("max_seq_length")
    source = f"per_device_train_batch_size: {micro}" if micro else f"{_WHOSE}' default"
    reading.say("micro-batch", micro or 8, source)
    reading.say("grad-accum", steps or 1, f"gradient_accumulation_steps: {steps}" if steps else f"{_WHOSE}' default")
    if length is not None:
        reading.say("seq-len", length, f"max_seq_length: {length}")
    on = table.flag("gradient_checkpointing")
    source = f"{_WHOSE}' default" if on is None else f"gradient_checkpointing: {str(on).lower()}"
    reading.say("checkpointing", "full" if on else "none", source)
    say_mixed(reading, "bf16", "its launch commands: mixed_precision bf16")
    reading.notes.append("the launch command says how the model is spread: name it with --strategy")
    reading.plain = True
    flash = table.flag("use_flash_attn")
    reading.say("attention", "sdpa" if flash is False else "flash", "flash attention where it is installed")
    _adapters(reading, table)
    if reading.value("peft") is None:
        reading.set("dtype.params", "bfloat16", "finetune.py loads the weights in bfloat16")
    if table.flag("use_liger_kernel"):
        reading.set("kernels.liger", True, "use_liger_kernel: true")
        reading.say("fused-loss", True, "use_liger_kernel: true")
    norm = table.raw("clip_grad_norm")
    if norm is not None and not str(norm).startswith("-"):
        clipping(reading, table.rate("clip_grad_norm"), "clip_grad_norm")
    say_otherwise(reading, table, _OTHERWISE)


def _adapters(reading: Reading, table: Table) -> None:
    packed = bool(table.flag("use_qlora"))
    eight = bool(table.flag("use_8bit_optimizer"))
    if packed:
        # open_instruct/finetune.py, main: bitsandbytes.optim.AdamW(optim_bits=8 or 32, is_paged=True) under use_qlora
        # alone; use_8bit_optimizer by itself has no effect.
        path = f"bitsandbytes.optim.PagedAdamW{'8bit' if eight else ''}"
        source = "use_8bit_optimizer: true" if eight else "use_qlora: true, bitsandbytes' paged AdamW of 32 bits"
        say_component_optimizer(reading, path, source, fused=False)
    else:
        fused = table.flag("fused_optimizer") is not False
        chosen = by_word("adamw_torch_fused" if fused else "adamw_torch")
        assert chosen is not None
        reading.say("optimizer", chosen.name, f"fused_optimizer: {str(fused).lower()}, or its default")
    if not packed and not table.flag("use_lora"):
        return
    say_adapters(reading, "use_lora: true", quantised=packed, because="use_qlora: true")
    if packed:
        reading.set("quant.double", True, "finetune.py quantises the scales as well")
    rank, share = table.count("lora_rank"), table.rate("lora_dropout")
    reading.say("lora-rank", rank or 64, f"lora_rank: {rank}" if rank else f"{_WHOSE}' default")
    reading.set("lora.dropout", 0.1 if share is None else share, f"lora_dropout: {0.1 if share is None else share}")
    reading.say("lora-targets", _TARGETS, "finetune.py")
