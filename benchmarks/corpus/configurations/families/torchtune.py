"""torchtune 0.7 (recipes)."""

import re
from pathlib import Path

from benchmarks.corpus.configurations.families.reading import Content, Read

_TUNE_TARGETS = {
    "q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj",
}  # fmt: skip


def torchtune(table: Content, root: Path, path: str) -> Read:
    """torchtune 0.7: types are pure, several devices shard by FSDP2, one device is of a recipe of its own."""
    read = Read(kind="torchtune")
    out = read.options
    text = (root / path).read_text()
    builder = table["model"]["_component_"].rsplit(".", 1)[1]
    if (table.get("tensor_parallel_dim") or 1) > 1:
        read.refused = "tensor_parallel_dim above 1"
        return read
    found = re.findall(r"tune download (\S+)", text)
    out["model"] = found[0] if found else None
    if "single_device" in path:
        out["processes"], out["strategy"] = 1, "single"
    else:
        out["strategy"] = "fsdp"
        out["offload"] = "all" if table.get("fsdp_cpu_offload") else "none"
    out["micro-batch"], out["grad-accum"] = table["batch_size"], table.get("gradient_accumulation_steps", 1)
    out["seq-len"] = table["tokenizer"].get("max_seq_len")
    out["precision"] = {"bf16": "bf16", "fp32": "fp32"}[table["dtype"]]
    out["checkpointing"] = "full" if table.get("enable_activation_checkpointing") else "none"
    kind = table["optimizer"]["_component_"]
    names = {"torch.optim.AdamW": "adamw", "bitsandbytes.optim.PagedAdamW8bit": "paged-adamw-8bit"}
    chosen = names.get(kind)
    if chosen is None:
        read.said.append(kind.rsplit(".", 1)[1])
    else:
        out["optimizer"] = "adamw-fused" if chosen == "adamw" and table["optimizer"].get("fused") else chosen
    out["peft"] = "qlora" if builder.startswith("qlora") else "lora" if builder.startswith("lora") else None
    if out["peft"]:
        model = table["model"]
        out["lora-rank"] = model.get("lora_rank", 8)
        if "vision" not in builder and "phi" not in builder:
            targets = [_TUNE_TARGETS[name] for name in model["lora_attn_modules"]]
            targets += ["gate_proj", "up_proj", "down_proj"] if model.get("apply_lora_to_mlp") else []
            targets += ["lm_head"] if model.get("apply_lora_to_output") else []
            out["lora-targets"] = ",".join(targets)
    if table["model"].get("use_dora"):
        read.said.append("use_dora")
    if "quantizer" in table:
        read.said.append("quantizer")
    if table.get("optimizer_in_bwd"):
        read.said.append("optimizer_in_bwd")
    return read
