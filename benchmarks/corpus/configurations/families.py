"""Each family's keys, read by a few lines each, from their sources: it shares nothing with `plan from-config`.

torchtune 0.7 (recipes), torchtitan 0.2.2 (config/job_config.py), litgpt 0.5.13 (finetune/, pretrain.py), ms-swift
4.5.2 (arguments/), open-instruct (finetune.py), LLaMA-Factory 0.9.5 (hparams/) and its v1 (v1/config), axolotl 0.18.0
(utils/schemas), unsloth Studio (unsloth_cli/config.py), trl 1.16 (SFTConfig), transformers 5.x, accelerate 1.15.
"""

import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Content = dict[str, Any]
_OPTIM = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw-fused", "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "paged_adamw_8bit": "paged-adamw-8bit", "adafactor": "adafactor", "muon": "muon", "adamw_hf": "adamw-forloop",
    "sgd": "sgd",
}  # fmt: skip
_WORLD = 8


@dataclass
class Read:
    """What must come out."""

    options: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    refused: str = ""
    kind: str = ""


def content(path: Path) -> Content:
    """A file's table."""
    text = path.read_text()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError:
            return {}
    return yaml.safe_load(text)


def _truth(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "1", "on")


def _optimizer(read: Read, name: str) -> None:
    if name in _OPTIM:
        read.options["optimizer"] = _OPTIM[name]
    else:
        read.said.append(name)


def _world(read: Read, spread: str | None = None) -> None:
    """DDP on eight, one device alone, or as the file says."""
    count = read.options.get("processes", _WORLD)
    read.options["strategy"] = spread or ("single" if count == 1 else "ddp")


def _zero(read: Read, table: Content, *, alone: bool) -> None:
    """A DeepSpeed table; `alone` where no Trainer or Accelerate fills it in."""
    zero = table.get("zero_optimization") or {}
    zero = {"stage": 1} if zero is True else zero
    stage = zero.get("stage", 0)
    read.options["strategy"] = f"zero{stage}" if stage else ("single" if read.options.get("processes") == 1 else "ddp")
    devices = [(zero.get(key) or {}).get("device", "none") for key in ("offload_optimizer", "offload_param")]
    devices[1] = devices[1] if stage == 3 else "none"  # runtime/engine.py hands it to stage 3 alone
    if zero.get("cpu_offload") and devices[0] == "none":
        devices[0] = "cpu"
    if stage:
        read.options["offload"] = (
            "nvme"
            if "nvme" in devices
            else "all"
            if devices[1] == "cpu"
            else "optimizer"
            if devices[0] == "cpu"
            else "none"
        )
    for key in ("zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size"):
        if zero.get(key) not in (None, False, 1):
            read.said.append(key)
    kinds = {kind: (table.get(kind) or {}).get("enabled") for kind in ("bf16", "fp16", "bfloat16")}
    if True in kinds.values():
        read.options["precision"] = "fp16-mixed" if kinds["fp16"] is True else "bf16-mixed"
    elif alone and "auto" not in kinds.values() and "auto" not in table.values():
        read.options["precision"] = "fp32"
    for option, key in (
        ("micro-batch", "train_micro_batch_size_per_gpu"),
        ("grad-accum", "gradient_accumulation_steps"),
    ):
        if isinstance(table.get(key), int):
            read.options[option] = table[key]
    kind = (table.get("optimizer") or {}).get("type")
    if kind and kind.lower() not in ("adam", "adamw"):
        read.said.append(kind)


def _named(read: Read, other: str, root: Path, path: str) -> bool:
    """A DeepSpeed file that this one names: as seen from a folder above it, up to the repository's root."""
    below = [(root / path).parent, *(root / path).parent.parents]
    places = [folder / other for folder in below if folder.is_relative_to(root)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        read.refused = "the file that it names is not there"
        return False
    _zero(read, content(found), alone=False)
    return True


def deepspeed(table: Content, root: Path, path: str) -> Read:
    """A file of DeepSpeed's own. Eight processes: what does not add up to its global batch is refused."""
    read = Read(kind="deepspeed")
    if "compute_environment" in table or "distributed_type" in table:
        return accelerate(table, root, path)
    _zero(read, table, alone=True)
    sizes = [
        table.get(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    ]
    if all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1] * sizes[2] * _WORLD:
        read.refused = "the batch does not add up on eight GPUs"
    compression = table.get("compression_training") or {}
    for inner in compression.values():
        shared = inner.get("shared_parameters", inner)
        if _truth(shared.get("enabled")):
            read.said.append("compression_training")
            break
    for key in ("data_efficiency", "progressive_layer_drop"):
        if _truth((table.get(key) or {}).get("enabled")):
            read.said.append(key)
    return read


def _fsdp(read: Read, table: Content, default: int) -> None:
    plain = {key.removeprefix("fsdp_"): value for key, value in table.items()}
    version = int(plain.get("version", default))
    sharding = str(plain.get("sharding_strategy", "FULL_SHARD")).upper()
    names = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD"}
    sharding = names.get(sharding, sharding)
    spread = "fsdp" if version == 2 or sharding == "SHARD_GRAD_OP" else "fsdp1"
    read.options["strategy"] = "hsdp" if version == 1 and sharding.startswith("HYBRID") else spread
    read.options["offload"] = "all" if _truth(plain.get("offload_params")) else "none"
    if _truth(plain.get("activation_checkpointing")):
        read.options["checkpointing"] = "full"


def accelerate(table: Content, root: Path, path: str) -> Read:
    """`accelerate launch --config_file`."""
    read = Read(kind="accelerate")
    kind = str(table.get("distributed_type", "NO")).upper()
    kind = "NO" if kind == "FALSE" else kind
    if table.get("num_processes") is not None or kind == "NO":
        read.options["processes"] = table.get("num_processes") or 1
    parallel = table.get("parallelism_config") or {}
    if (parallel.get("parallelism_config_tp_size") or 1) > 1:
        read.refused = "tp above 1"
        return read
    shared = [parallel.get(f"parallelism_config_{name}_size") or 1 for name in ("cp", "sp")]
    if max(shared) > 1:  # a ring under FSDP2, Ulysses under ZeRO-3: accelerate utils/dataclasses.py
        read.options["cp"] = max(shared)
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"):
        read.refused = kind
        return read
    precision = str(table.get("mixed_precision") or "no")
    precision = "no" if precision == "False" else precision
    named = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp8": "fp8-mixed"}[precision]
    if kind == "DEEPSPEED":
        inner = table["deepspeed_config"]
        other = inner.get("deepspeed_config_file")
        if other:
            _named(read, other, root, path)
            return read
        stage = inner.get("zero_stage", 2)
        _world(read, f"zero{stage}" if stage else None)
        devices = [inner.get(f"offload_{name}_device", "none") for name in ("optimizer", "param")]
        if stage:
            read.options["offload"] = "all" if devices[1] == "cpu" else "optimizer" if devices[0] == "cpu" else "none"
        if "gradient_accumulation_steps" in inner:
            read.options["grad-accum"] = inner["gradient_accumulation_steps"]
        if "mixed_precision" in table:
            read.options["precision"] = named
        return read
    read.options["precision"] = named
    if kind == "FSDP":
        _fsdp(read, table["fsdp_config"], 1)
        if (parallel.get("parallelism_config_dp_replicate_size") or 1) > 1:
            read.options["strategy"] = "hsdp"
    else:
        _world(read)
    return read


def fragment(table: Content, root: Path, path: str) -> Read:
    """ms-swift's `fsdp` presets: the Trainer's words and its table, in a file of their own."""
    read = Read(kind="trainer")
    if "compute_environment" in table:
        return accelerate(table, root, path)
    _fsdp(read, table["fsdp_config"], 2)
    if "offload" in str(table.get("fsdp")):
        read.options["offload"] = "all"
    return read


def _trainer_keys(read: Read, table: Content) -> None:
    read.options["model"] = table.get("model_name_or_path")
    read.options["micro-batch"] = table.get("per_device_train_batch_size") or 8
    read.options["grad-accum"] = table.get("gradient_accumulation_steps") or 1
    _optimizer(read, table.get("optim") or "adamw_torch_fused")
    if _truth(table.get("use_liger_kernel")) or _truth(table.get("use_liger")):
        read.options["kernels.liger"] = "true"


def _precision(table: Content, default: str) -> str:
    if _truth(table.get("bf16")):
        return "bf16-mixed"
    if _truth(table.get("fp16")):
        return "fp16-mixed"
    return "fp32" if "bf16" in table else default


def trainer(table: Content, root: Path, path: str) -> Read:
    """TrainingArguments and a script's own."""
    read = Read(kind="trainer")
    _trainer_keys(read, table)
    read.options["precision"] = _precision(table, "fp32")
    read.options["checkpointing"] = "full" if _truth(table.get("gradient_checkpointing")) else "none"
    read.options["seq-len"] = table.get("block_size") or table.get("max_seq_length")
    _world(read)
    return read


def trl(table: Content, root: Path, path: str) -> Read:
    """SFT of TRL, alignment-handbook, open-r1: SFTConfig's defaults."""
    if "compute_environment" in table:
        return accelerate(table, root, path)
    read = trainer(table, root, path)
    read.options["precision"] = _precision(table, "bf16-mixed")
    checkpointing = table.get("gradient_checkpointing", True)
    read.options["checkpointing"] = "full" if _truth(checkpointing) else "none"
    read.options["seq-len"] = table.get("max_length") or table.get("max_seq_length") or 1024
    if table.get("attn_implementation"):
        read.options["attention"] = {"flash_attention_2": "flash", "eager": "eager", "sdpa": "sdpa"}[
            table["attn_implementation"]
        ]
    if _truth(table.get("use_peft")):
        read.options["peft"] = "qlora" if _truth(table.get("load_in_4bit")) else "lora"
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


def axolotl(table: Content, root: Path, path: str) -> Read:
    """axolotl 0.18.0: bf16 is `auto` where nothing is written."""
    read = Read(kind="axolotl")
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    out = read.options
    out["model"] = table["base_model"]
    out["seq-len"] = table.get("sequence_len") or 512
    micro = table.get("micro_batch_size") or 1
    out["micro-batch"] = micro
    out["grad-accum"] = (
        table["batch_size"] // micro if table.get("batch_size") else table.get("gradient_accumulation_steps") or 1
    )
    _optimizer(read, table.get("optimizer") or "adamw_torch_fused")
    bf16 = str(table.get("bf16")).lower()
    fp16 = _truth(table.get("fp16"))
    if bf16 == "full" or (_truth(table.get("bfloat16")) and bf16 in ("none", "false")):
        out["precision"] = "bf16"
    elif bf16 in ("true", "auto") or ("bf16" not in table and not fp16):
        out["precision"] = "bf16-mixed"
    elif bf16 == "none" and not fp16:
        out["precision"] = "fp32"
    else:
        out["precision"] = "fp16-mixed" if fp16 or _truth(table.get("float16")) else "fp32"
    fsdp = table.get("fsdp_config") or {}
    inner = _truth(fsdp.get("activation_checkpointing")) or _truth(fsdp.get("fsdp_activation_checkpointing"))
    on = str(table.get("gradient_checkpointing")).lower() in ("true", "offload", "unsloth", "offload_disk")
    out["checkpointing"] = "full" if on or inner else "none"
    if str(table.get("gradient_checkpointing")).lower() in ("offload", "unsloth", "offload_disk"):
        read.said.append("offloaded")
    named = str(table.get("attn_implementation") or "")
    if "flash" in named or _truth(table.get("flash_attention")):
        out["attention"] = "flash"
    elif named in ("sdpa", "eager"):
        out["attention"] = named
    elif _truth(table.get("sdp_attention")):
        out["attention"] = "sdpa"
    elif named or _truth(table.get("flex_attention")) or _truth(table.get("xformers_attention")):
        read.said.append("attention")
    if table.get("deepspeed"):
        if not _named(read, table["deepspeed"], root, path):
            return read
    elif table.get("fsdp") or table.get("fsdp_config"):
        words = " ".join(table.get("fsdp") or ())
        version = table.get("fsdp_version") or fsdp.get("fsdp_version") or (1 if words else 2)
        _fsdp(
            read,
            {"version": version, **{k.removeprefix("fsdp_"): v for k, v in fsdp.items() if "version" not in k}},
            version,
        )
        if "offload" in words:
            out["offload"] = "all"
    else:
        _world(read)
        if not table.get("adapter") and out["precision"] == "bf16-mixed":
            out["dtype.params"] = "bfloat16"
    adapter = table.get("adapter")
    four, eight = _truth(table.get("load_in_4bit")), _truth(table.get("load_in_8bit"))
    if adapter:
        out["peft"] = "qlora" if four or eight else "lora"
        out["lora-rank"] = table.get("lora_r") or 8
        if eight and not four:
            out["quant.base"] = "int8"
        targets = table.get("lora_target_modules")
        if _truth(table.get("lora_target_linear")):
            out["lora-targets"] = "all-linear"
        elif isinstance(targets, str):
            out["lora-targets"] = targets
        elif targets:
            out["lora-targets"] = ",".join(targets)
        for key in ("lora_modules_to_save", "lora_target_parameters"):
            if table.get(key):
                read.said.append(key)
    else:
        out["peft"] = None
    plugins = " ".join(table.get("plugins") or ())
    cut = "CutCrossEntropyPlugin" in plugins and table.get("cut_cross_entropy") is not False
    if cut or _truth(table.get("liger_fused_linear_cross_entropy")):
        out["fused-loss"] = "true"
    if any(
        _truth(table.get(f"liger_{name}")) for name in ("rope", "rms_norm", "glu_activation", "layer_norm", "swiglu")
    ):
        out["kernels.liger"] = "true"
    for key in ("qat", "gptq", "float16", "activation_offloading", "unfrozen_parameters", "process_reward_model"):
        if table.get(key):
            read.said.append(key)
    return read


def llamafactory(table: Content, root: Path, path: str) -> Read:
    """LLaMA-Factory 0.9.5: checkpoints unless told not to, LoRA on all linear layers."""
    if "compute_environment" in table:
        return accelerate(table, root, path)
    if "zero_optimization" in table:
        return deepspeed(table, root, path)
    read = Read(kind="llamafactory")
    out = read.options
    _trainer_keys(read, table)
    out["seq-len"] = table.get("cutoff_len") or 2048
    out["precision"] = "fp8-mixed" if _truth(table.get("fp8")) else _precision(table, "fp32")
    out["checkpointing"] = "none" if _truth(table.get("disable_gradient_checkpointing")) else "full"
    if _truth(table.get("use_adam_mini")):
        out.pop("optimizer", None)
        read.said.append("use_adam_mini")
    read.said += [key for key in ("use_eaft_loss", "use_kt") if _truth(table.get(key))]
    if table.get("deepspeed"):
        if not _named(read, table["deepspeed"], root, path):
            return read
    else:
        _world(read)
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
        _world(read, "fsdp")
        out["offload"] = "none"
    else:
        _world(read)
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
    count = out.get("processes", _WORLD)
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
        "grad-accum": table.get("gradient_accumulation_steps") or max(1, math.ceil(16 / micro / _WORLD)),
        "checkpointing": "full" if table.get("gradient_checkpointing", True) else "none", "optimizer": "adamw-fused",
        "peft": "lora" if table.get("tuner_type", "lora") == "lora" else None, "lora-rank": table.get("lora_rank", 8),
        "lora-targets": targets if isinstance(targets, str) else ",".join(targets),
    }  # fmt: skip
    if table.get("deepspeed"):
        out["strategy"] = table["deepspeed"].split("_")[0]
    if table.get("attn_impl") == "flash_attn":
        out["attention"] = "flash"
    return read


def swift_other(table: Content, root: Path, path: str) -> Read:
    """What else lies in ms-swift's repository."""
    return swift(table, root, path)


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
        "optimizer": _OPTIM.get(training.get("optim", "adamw_8bit")),
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
