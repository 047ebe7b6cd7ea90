"""open-instruct (finetune.py)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.launchers import accelerate, deepspeed
from benchmarks.corpus.configurations.families.reading import Content, Read


def open_instruct(table: Content, root: Path, path: str) -> Read:
    """open_instruct/finetune.py: FlatArguments. The launch command says how it is spread."""
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    if "compute_environment" in table:
        return accelerate(table, root, path)
    read = Read(kind="open-instruct")
    read.options = {
        "model": table["model_name_or_path"], "micro-batch": table.get("per_device_train_batch_size", 8),
        "grad-accum": table.get("gradient_accumulation_steps", 1), "seq-len": table.get("max_seq_length"),
        "checkpointing": "full" if table.get("gradient_checkpointing") else "none", "optimizer": "adamw-fused",
        "precision": "bf16-mixed", "attention": "flash", "peft": None, "dtype.params": "bfloat16",
    }  # fmt: skip
    if table.get("use_lora"):
        read.options |= {"peft": "lora", "lora-rank": table.get("lora_rank", 64)}
        del read.options["dtype.params"]
    return read
