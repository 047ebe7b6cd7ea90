"""LLaMA-Factory 0.9.5 (hparams/) and its v1 (v1/config)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.launchers import accelerate, deepspeed, take_named
from benchmarks.corpus.configurations.families.reading import Content, Read, precision_of, take_world, truth
from benchmarks.corpus.configurations.families.trainers import take_trainer_keys


def llamafactory(table: Content, root: Path, path: str) -> Read:
    """LLaMA-Factory 0.9.5: checkpoints unless told not to, LoRA on all linear layers."""
    if "compute_environment" in table:
        return accelerate(table, root, path)
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    read = Read(kind="llamafactory")
    out = read.options
    take_trainer_keys(read, table)
    out["seq-len"] = table.get("cutoff_len") or 2048
    out["precision"] = "fp8-mixed" if truth(table.get("fp8")) else precision_of(table, "fp32")
    out["checkpointing"] = "none" if truth(table.get("disable_gradient_checkpointing")) else "full"
    if truth(table.get("pure_bf16")):
        out["precision"] = "bf16"
    if truth(table.get("use_apollo")):
        read.said.append("use_apollo")
    if truth(table.get("use_adam_mini")):
        out.pop("optimizer", None)
        read.said.append("use_adam_mini")
    read.said += [key for key in ("use_eaft_loss", "use_kt") if truth(table.get(key))]
    if table.get("deepspeed"):
        if not take_named(read, table["deepspeed"], root, path):
            return read
    else:
        take_world(read)
    out["attention"] = {"fa2": "flash", "disabled": "eager", "sdpa": "sdpa", "auto": "sdpa"}[
        table.get("flash_attn", "auto")
    ]
    kind = table.get("finetuning_type", "lora")
    if kind == "full":
        out["peft"] = None
        return read
    if kind != "lora":
        read.said.append(kind)
    out["peft"] = "qlora" if table.get("quantization_bit") in (4, 8) else "lora"
    if kind == "lora":
        out["lora-rank"] = table.get("lora_rank") or 8
        targets = table.get("lora_target", "all")
        out["lora-targets"] = "all-linear" if targets == "all" else targets
    return read


def llamafactory_v1(table: Content, root: Path, path: str) -> Read:
    """LLaMA-Factory's v1: fp32 weights when all train, checkpointing on, AdamW of torch (foreach)."""
    read = Read(kind="llamafactory-v1")
    out = read.options
    if table.get("cp_size", 1) > 1:
        read.refused = "cp_size above 1"
        return read
    name = (table.get("dist_config") or {}).get("name")
    if name == "fsdp2":
        take_world(read, "fsdp")
        out["offload"] = "none"
    else:
        take_world(read)
    out |= {
        "model": table["model"], "seq-len": table.get("cutoff_len", 2048),
        "micro-batch": table.get("micro_batch_size", 1),
        "precision": "bf16-mixed" if table.get("bf16", True) else "fp32", "optimizer": "adamw",
        "checkpointing": "full" if table.get("enable_activation_checkpointing", True) else "none",
        "attention": {"flash_attention_2": "flash"}.get(table.get("flash_attn", "sdpa"), "sdpa"), "peft": None,
        "grad-accum": 1,
    }  # fmt: skip
    peft = table.get("peft_config") or {}
    if peft.get("name") == "lora":
        targets = peft.get("target_modules", "all")
        out |= {"peft": "lora", "lora-rank": peft.get("r", 8)}
        out["lora-targets"] = "all-linear" if targets == "all" else ",".join(targets)
    if (table.get("kernel_config") or {}).get("name") == "liger_kernel":
        out["kernels.liger"] = "true"
    if table.get("batching_strategy", "normal") != "normal":
        read.said.append("batching_strategy")
    return read
