"""unsloth Studio (unsloth_cli/config.py)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.reading import OPTIMIZERS, Content, Read


def unsloth(table: Content, root: Path, path: str) -> Read:
    """unsloth Studio: four bits and 8-bit AdamW unless it says otherwise; the loss keeps no logits."""
    read = Read(kind="unsloth", said=["unsloth"])
    out = read.options
    training, lora = table["training"], table.get("lora", {})
    kind = training.get("training_type", "lora")
    targets = lora.get("target_modules")
    targets = targets.split(",") if isinstance(targets, str) else targets
    recomputes = str(training.get("gradient_checkpointing", "unsloth")).lower() not in ("false", "none")
    out |= {
        "model": table.get("model"), "micro-batch": training.get("batch_size", 2), "precision": "bf16-mixed",
        "grad-accum": training.get("gradient_accumulation_steps", 4), "seq-len": training.get("max_seq_length", 2048),
        "optimizer": OPTIMIZERS.get(training.get("optim", "adamw_8bit")),
        "checkpointing": "full" if recomputes else "none",
        "peft": None if kind == "full" else "qlora" if training.get("load_in_4bit", True) else "lora",
    }  # fmt: skip
    if kind != "full":
        out["lora-rank"] = lora.get("lora_r", 64)
        if targets:
            out["lora-targets"] = "all-linear" if targets == ["all-linear"] else ",".join(targets)
    if table.get("audio_type"):
        read.said.append("audio_type")
    return read
