"""ms-swift 4.5.2 (arguments/)."""

import math
from pathlib import Path

from benchmarks.corpus.configurations.families.launchers import accelerate, deepspeed
from benchmarks.corpus.configurations.families.reading import WORLD, Content, Read


def swift(table: Content, root: Path, path: str) -> Read:
    """ms-swift 4.5.2."""
    if "compute_environment" in table:
        return accelerate(table, root, path)
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    if table.get("rlhf_type"):
        return Read(refused="several models")
    read = Read(kind="ms-swift")
    out = read.options
    micro = table.get("per_device_train_batch_size", 1)
    targets = table.get("target_modules", "all-linear")
    out |= {
        "model": table["model"], "micro-batch": micro, "seq-len": table.get("max_length"), "precision": "bf16-mixed",
        "grad-accum": table.get("gradient_accumulation_steps") or max(1, math.ceil(16 / micro / WORLD)),
        "checkpointing": "full" if table.get("gradient_checkpointing", True) else "none", "optimizer": "adamw-fused",
        "peft": "lora" if table.get("tuner_type", "lora") == "lora" else None, "lora-rank": table.get("lora_rank", 8),
        "lora-targets": targets if isinstance(targets, str) else ",".join(targets),
    }  # fmt: skip
    if table.get("deepspeed"):
        out["strategy"] = table["deepspeed"].split("_")[0]
    if table.get("attn_impl") == "flash_attn":
        out["attention"] = "flash"
    return read
