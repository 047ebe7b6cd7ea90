"""axolotl 0.18.0 (utils/schemas)."""

from pathlib import Path

from benchmarks.corpus.configurations.families.launchers import deepspeed, take_fsdp, take_named
from benchmarks.corpus.configurations.families.reading import Content, Read, take_optimizer, take_world, truth

_OFFLOADED = ("offload", "unsloth", "offload_disk")


def axolotl(table: Content, root: Path, path: str) -> Read:
    """axolotl 0.18.0: bf16 is `auto` where nothing is written."""
    read = Read(kind="axolotl")
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    _take_batch(read, table)
    take_optimizer(read, table.get("optimizer") or "adamw_torch_fused")
    read.options["precision"] = _precision(table)
    _take_checkpointing(read, table)
    _take_attention(read, table)
    if not _take_spread(read, table, root, path):
        return read
    _take_adapter(read, table)
    _take_kernels(read, table)
    for key in ("qat", "gptq", "float16", "activation_offloading", "unfrozen_parameters", "process_reward_model"):
        if table.get(key):
            read.said.append(key)
    return read


def _take_batch(read: Read, table: Content) -> None:
    micro = table.get("micro_batch_size") or 1
    whole = table.get("batch_size")
    read.options |= {
        "model": table["base_model"],
        "seq-len": table.get("sequence_len") or 512,
        "micro-batch": micro,
        "grad-accum": whole // micro if whole else table.get("gradient_accumulation_steps") or 1,
    }


def _precision(table: Content) -> str:
    bf16 = str(table.get("bf16")).lower()
    fp16 = truth(table.get("fp16"))
    if bf16 == "full" or (truth(table.get("bfloat16")) and bf16 in ("none", "false")):
        return "bf16"
    if bf16 in ("true", "auto") or ("bf16" not in table and not fp16):
        return "bf16-mixed"
    if bf16 == "none" and not fp16:
        return "fp32"
    return "fp16-mixed" if fp16 or truth(table.get("float16")) else "fp32"


def _take_checkpointing(read: Read, table: Content) -> None:
    fsdp = table.get("fsdp_config") or {}
    inner = truth(fsdp.get("activation_checkpointing")) or truth(fsdp.get("fsdp_activation_checkpointing"))
    asked = str(table.get("gradient_checkpointing")).lower()
    read.options["checkpointing"] = "full" if inner or asked in ("true", *_OFFLOADED) else "none"
    if asked in _OFFLOADED:
        read.said.append("offloaded")


def _take_attention(read: Read, table: Content) -> None:
    named = str(table.get("attn_implementation") or "")
    if "flash" in named or truth(table.get("flash_attention")):
        read.options["attention"] = "flash"
    elif named in ("sdpa", "eager"):
        read.options["attention"] = named
    elif truth(table.get("sdp_attention")):
        read.options["attention"] = "sdpa"
    elif named or truth(table.get("flex_attention")) or truth(table.get("xformers_attention")):
        read.said.append("attention")


def _take_spread(read: Read, table: Content, root: Path, path: str) -> bool:
    """False where a file that it names is not there."""
    fsdp = table.get("fsdp_config") or {}
    if table.get("deepspeed"):
        return take_named(read, table["deepspeed"], root, path)
    if table.get("fsdp") or table.get("fsdp_config"):
        words = " ".join(table.get("fsdp") or ())
        version = table.get("fsdp_version") or fsdp.get("fsdp_version") or (1 if words else 2)
        others = {key.removeprefix("fsdp_"): value for key, value in fsdp.items() if "version" not in key}
        take_fsdp(read, {"version": version, **others}, version)
        if "offload" in words:
            read.options["offload"] = "all"
        return True
    take_world(read)
    if not table.get("adapter") and read.options["precision"] == "bf16-mixed":
        read.options["dtype.params"] = "bfloat16"
    return True


def _take_adapter(read: Read, table: Content) -> None:
    out = read.options
    if not table.get("adapter"):
        out["peft"] = None
        return
    four, eight = truth(table.get("load_in_4bit")), truth(table.get("load_in_8bit"))
    out["peft"] = "qlora" if four or eight else "lora"
    out["lora-rank"] = table.get("lora_r") or 8
    if eight and not four:
        out["quant.base"] = "int8"
    targets = table.get("lora_target_modules")
    if truth(table.get("lora_target_linear")):
        out["lora-targets"] = "all-linear"
    elif targets:
        out["lora-targets"] = targets if isinstance(targets, str) else ",".join(targets)
    for key in ("lora_modules_to_save", "lora_target_parameters"):
        if table.get(key):
            read.said.append(key)


def _take_kernels(read: Read, table: Content) -> None:
    plugins = " ".join(table.get("plugins") or ())
    cut = "CutCrossEntropyPlugin" in plugins and table.get("cut_cross_entropy") is not False
    if cut or truth(table.get("liger_fused_linear_cross_entropy")):
        read.options["fused-loss"] = "true"
    liger = ("rope", "rms_norm", "glu_activation", "layer_norm", "swiglu")
    if any(truth(table.get(f"liger_{name}")) for name in liger):
        read.options["kernels.liger"] = "true"
