"""torchtitan 0.2.2 (config/job_config.py)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.reading import Content, Read

_OWNERS = {"Llama": "meta-llama", "Qwen": "Qwen", "deepseek": "deepseek-ai", "gpt-oss": "openai"}


def torchtitan(table: Content, root: Path, path: str) -> Read:
    """torchtitan 0.2.2: FSDP2 over what is left, bf16 over fp32 weights, fused AdamW, every second layer recomputed."""
    read = Read(kind="torchtitan")
    out = read.options
    parallel = table.get("parallelism", {})
    for key in (
        "tensor_parallel_degree",
        "pipeline_parallel_degree",
        "context_parallel_degree",
        "expert_parallel_degree",
    ):
        if parallel.get(key, 1) > 1:
            read.refused = f"{key} above 1"
            return read
    training = table.get("training", {})
    assets = str(table["model"].get("hf_assets_path", "./tests")).rstrip("/").rsplit("/", 1)[1]
    owner = next((owner for sign, owner in _OWNERS.items() if assets.startswith(sign)), None)
    out["model"] = f"{owner}/{assets}" if owner else None
    if owner is None:
        read.said.append("flavor" if table["model"].get("name") != "hf" else "model")
    out |= {
        "strategy": "fsdp", "micro-batch": training.get("local_batch_size", 8),
        "seq-len": training.get("seq_len", 2048),
        "offload": "all" if training.get("enable_cpu_offload") else "none",
        "optimizer": "adamw-fused" if table["optimizer"].get("implementation", "fused") == "fused" else "adamw",
        "precision": "bf16-mixed", "peft": None, "grad-accum": 1,
    }  # fmt: skip
    if "float8" in " ".join(table["model"].get("converters", [])):
        out["precision"] = "fp8-mixed"
    recompute = table.get("activation_checkpoint", {})
    mode, option = recompute.get("mode", "selective"), str(recompute.get("selective_ac_option", "2"))
    if mode == "selective" and option.isdigit():
        out["checkpointing"], out["checkpoint.every"] = "full", option
    else:
        out["checkpointing"] = mode
    return read
