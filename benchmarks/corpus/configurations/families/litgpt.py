"""litgpt 0.5.13 (finetune/, pretrain.py)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.reading import WORLD, Content, Read

_LIT_TARGETS = {"lora_query": "q_proj", "lora_key": "k_proj", "lora_value": "v_proj", "lora_projection": "o_proj"}


def litgpt(table: Content, root: Path, path: str) -> Read:
    """litgpt 0.5.13: pure types, FSDP above one device, bitsandbytes' paged AdamW under quantisation."""
    read = Read(kind="litgpt")
    out = read.options
    if "model_name" in table:
        out["model"] = None
        read.said.append(table["model_name"])
    else:
        out["model"] = "/".join(table["checkpoint_dir"].split("/")[-2:])
    devices = table.get("devices", 1)
    if devices != "auto":
        out["processes"] = devices * table.get("num_nodes", 1)
    count = out.get("processes", WORLD)
    train = table["train"]
    out["micro-batch"] = train["micro_batch_size"]
    out["grad-accum"] = train["global_batch_size"] // count // train["micro_batch_size"]
    out["seq-len"] = train.get("max_seq_length")
    out["precision"] = {"bf16-true": "bf16", "bf16-mixed": "bf16-mixed", "32-true": "fp32"}[table["precision"]]
    pretrains = "model_name" in table
    if count == 1:
        out["strategy"], out["checkpointing"] = "single", "none"
    elif pretrains:
        out["strategy"], out["checkpointing"] = "hsdp", "none"
    else:
        out["strategy"], out["checkpointing"] = ("fsdp" if "lora_r" in table else "fsdp1"), "full"
    quantised = table.get("quantize")
    if quantised:
        read.said.append("PagedAdamW")
    else:
        out["optimizer"] = "adamw-fused" if pretrains else "adamw"
    out["peft"] = ("qlora" if quantised else "lora") if "lora_r" in table else None
    if out["peft"]:
        out["lora-rank"] = table["lora_r"]
        on = [name for key, name in _LIT_TARGETS.items() if table.get(key)]
        if "falcon" in table["checkpoint_dir"]:
            read.said.append("lora_query")  # one matrix on the hub
        elif not table.get("lora_mlp"):
            out["lora-targets"] = ",".join(on)
        if all(table.get(key) for key in (*_LIT_TARGETS, "lora_mlp")):
            out["lora-targets"] = "all-linear"
            if table.get("lora_head"):
                read.said.append("lora_head")
    return read
