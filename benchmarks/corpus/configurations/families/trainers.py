"""TrainingArguments, and SFT of TRL: trl 1.16 (SFTConfig), transformers 5.x."""

from pathlib import Path

from benchmarks.corpus.configurations.families.launchers import accelerate, take_named
from benchmarks.corpus.configurations.families.reading import (
    Content,
    Read,
    precision_of,
    take_optimizer,
    take_world,
    truth,
)


def take_trainer_keys(read: Read, table: Content) -> None:
    read.options["model"] = table.get("model_name_or_path")
    read.options["micro-batch"] = table.get("per_device_train_batch_size") or 8
    read.options["grad-accum"] = table.get("gradient_accumulation_steps") or 1
    take_optimizer(read, table.get("optim") or "adamw_torch_fused")
    if truth(table.get("use_liger_kernel")) or truth(table.get("use_liger")):
        read.options["kernels.liger"] = "true"


def trainer(table: Content, root: Path, path: str) -> Read:
    """TrainingArguments and a script's own."""
    read = Read(kind="trainer")
    take_trainer_keys(read, table)
    read.options["precision"] = precision_of(table, "fp32")
    read.options["checkpointing"] = "full" if truth(table.get("gradient_checkpointing")) else "none"
    read.options["seq-len"] = table.get("block_size") or table.get("max_seq_length")
    take_world(read)
    return read


def seq2seq(table: Content, root: Path, path: str) -> Read:
    """Seq2SeqTrainingArguments of a script whose model is a folder and whose loop casts it as `dtype` says."""
    read = trainer(table, root, path)
    del read.options["precision"]
    read.options["attention"] = table.get("attn_implementation")
    return read


def firefly(table: Content, root: Path, path: str) -> Read:
    """TrainingArguments beside Firefly's own (component/argument.py: train_mode is qlora by default)."""
    read = trainer(table, root, path)
    named = table.get("deepspeed")
    if named and not take_named(read, named, root, path):
        return read
    if table.get("train_mode", "qlora") == "full":
        read.options["peft"] = None
        return read
    read.options |= {"peft": "qlora", "lora-rank": table.get("lora_rank", 64)}
    return read


def trl(table: Content, root: Path, path: str) -> Read:
    """SFT of TRL, alignment-handbook, open-r1: SFTConfig's defaults."""
    if "compute_environment" in table:
        return accelerate(table, root, path)
    read = trainer(table, root, path)
    read.options["precision"] = precision_of(table, "bf16-mixed")
    checkpointing = table.get("gradient_checkpointing", True)
    read.options["checkpointing"] = "full" if truth(checkpointing) else "none"
    read.options["seq-len"] = table.get("max_length") or table.get("max_seq_length") or 1024
    if table.get("attn_implementation"):
        read.options["attention"] = {"flash_attention_2": "flash", "eager": "eager", "sdpa": "sdpa"}[
            table["attn_implementation"]
        ]
    if truth(table.get("use_peft")):
        read.options["peft"] = "qlora" if truth(table.get("load_in_4bit")) else "lora"
        read.options["lora-rank"] = table.get("lora_r", 16)
        targets = table.get("lora_target_modules")
        if targets:
            read.options["lora-targets"] = targets if isinstance(targets, str) else ",".join(targets)
        if table.get("lora_modules_to_save"):
            read.said.append("lora_modules_to_save")
    else:
        read.options["peft"] = None
    if read.options["peft"] is None and table.get("torch_dtype") == "bfloat16":
        read.options["dtype.params"] = "bfloat16"
    if table.get("spectrum_config_path"):
        read.said.append("spectrum_config_path")
    return read
