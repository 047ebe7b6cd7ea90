"""Oumi's YAML: what it hands transformers' and TRL's trainers, put into their own words and read as theirs.

oumi of 2026 (oumi-ai/oumi): src/oumi/core/configs/training_config.py (the longest sample of TRL's trainers),
configs/params/{training,model,peft,fsdp,deepspeed,grpo}_params.py (to_hf, defaults), builders/models.py.
"""

from collections.abc import Mapping

from gpu_plan.planner.from_config.formats.trainers import trainer
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import Content, table_of
from gpu_plan.planner.from_config.table import Table

_TRAINING = {
    "optimizer": "optim",
    "enable_gradient_checkpointing": "gradient_checkpointing",
    "compile": "torch_compile",
    "per_device_train_batch_size": "per_device_train_batch_size",
    "per_device_eval_batch_size": "per_device_eval_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_grad_norm": "max_grad_norm",
    "eval_strategy": "eval_strategy",
    "use_peft": "use_peft",
}
_MODEL = {
    "model_name": "model_name_or_path",
    "attn_implementation": "attn_implementation",
    "enable_liger_kernel": "use_liger_kernel",
}
_PEFT = {
    "lora_r": "lora_r",
    "lora_dropout": "lora_dropout",
    "lora_target_modules": "lora_target_modules",
    "lora_modules_to_save": "lora_modules_to_save",
    "q_lora": "load_in_4bit",
    "use_bnb_nested_quant": "use_bnb_nested_quant",
    "bnb_4bit_quant_storage": "bnb_4bit_quant_storage",
}
_USUAL: Mapping[str, object] = {
    "optim": "adamw_torch", "gradient_checkpointing": False, "use_peft": False, "max_grad_norm": 1.0,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
}  # fmt: skip
"""What its own parameters say where a file does not."""
_ADAPTED: Mapping[str, object] = {"lora_r": 8, "lora_dropout": 0.0}
_STORED = "auto"
_OWN_LOOP = "OUMI"
_SHARDED = {"FULL_SHARD": "full_shard", "HYBRID_SHARD": "hybrid_shard", "SHARD_GRAD_OP": "shard_grad_op"}
JOBS = {"TRL_DPO": "dpo", "TRL_KTO": "kto", "TRL_GRPO": "grpo"}
"""Recipe by `training.trainer_type`."""
OTHERS = {
    "TRL_GKD": "its student generates, and the recipe distill trains on given completions",
    "TRL_GOLD": "its student generates, and the recipe distill trains on given completions",
    "VERL_GRPO": "verl's workers do it, which a job document describes",
}


def signs(content: Content) -> tuple[str, ...]:
    """Its training table names a trainer."""
    return ("training",) if "trainer_type" in table_of(content, "training") else ()


def trainer_of(content: Content) -> str:
    """`training.trainer_type`, in capitals."""
    return str(table_of(content, "training").get("trainer_type") or "").upper()


def read(reading: Reading) -> None:
    """Notes what `oumi train` would do."""
    whole = reading.table
    kind = trainer_of({"training": whole.raw("training")})
    known = ("HF", "TRL_SFT", _OWN_LOOP, *JOBS)
    if kind not in known:
        raise reading.contradiction(f"training.trainer_type is {kind[:40]!r}: use {', '.join(known)}")
    flat = _flat(whole, kind)
    # What follows reads the trainer's own words, and says them where a value is wrong.
    if flat["torch_dtype"] == _STORED:
        flat["torch_dtype"] = "bfloat16"
        reading.approximate("model.torch_dtype_str: auto is the type that is stored: planned as bfloat16")
    reading.table = Table(flat, whole.where)
    trainer.read(reading)
    if kind == _OWN_LOOP:
        reading.approximate("training.trainer_type: OUMI is its own loop: planned as transformers' Trainer")


def _flat(whole: Table, kind: str) -> dict[str, object]:
    """The trainer's own arguments."""
    training, model, peft = (_inner(whole, name) for name in ("training", "model", "peft"))
    flat = {**_USUAL, **_ADAPTED}
    for table, names in ((training, _TRAINING), (model, _MODEL), (peft, _PEFT)):
        flat |= {theirs: table[own] for own, theirs in names.items() if table.get(own) is not None}
    if not flat["use_peft"]:
        flat = {key: value for key, value in flat.items() if key not in _PEFT.values()}
    if flat.get("load_in_4bit") and peft.get("q_lora_bits") == 8:
        flat["load_in_8bit"] = flat.pop("load_in_4bit")
    mixed = str(training.get("mixed_precision_dtype") or "none").lower()
    flat |= {"bf16": mixed == "bf16", "fp16": mixed == "fp16"}
    flat["torch_dtype"] = str(model.get("torch_dtype_str") or _STORED)
    length = model.get("model_max_length")
    if kind == "TRL_SFT":
        flat["packing"] = bool(_data(whole).get("pack"))
    more = training.get("trainer_kwargs")
    flat |= {key: _referred(value, whole) for key, value in more.items()} if isinstance(more, Mapping) else {}
    flat |= {"max_length": length} if length and kind in ("TRL_SFT", "TRL_DPO", "HF", _OWN_LOOP) else {}
    grpo = training.get("grpo")
    flat |= {key: value for key, value in grpo.items() if value is not None} if isinstance(grpo, Mapping) else {}
    return {**flat, **_sharding(whole)}


def _referred(value: object, whole: Table) -> object:
    """What another key says, where a value names one (OmegaConf's interpolation)."""
    if not (isinstance(value, str) and value.startswith("${") and value.endswith("}")):
        return value
    section, _, key = value[2:-1].partition(".")
    found = whole.peek(section)
    return found.get(key, value) if isinstance(found, Mapping) else value


def _data(whole: Table) -> Mapping[str, object]:
    train = _inner(whole, "data").get("train")
    return train if isinstance(train, Mapping) else {}


def _inner(whole: Table, name: str) -> Mapping[str, object]:
    found = whole.raw(name)
    return found if isinstance(found, Mapping) else {}


def _sharding(whole: Table) -> dict[str, object]:
    """Its tables for FSDP and DeepSpeed as the Trainer's arguments; neither is DDP's, or one device's."""
    fsdp, deepspeed = _inner(whole, "fsdp"), _inner(whole, "deepspeed")
    found: dict[str, object] = {}
    if fsdp.get("enable_fsdp"):
        word = _SHARDED.get(str(fsdp.get("sharding_strategy") or "FULL_SHARD").upper(), "full_shard")
        offload = " offload" if fsdp.get("cpu_offload") else ""
        found = {"fsdp": f"{word} auto_wrap{offload}", "fsdp_config": {"fsdp_version": 1}}
    if deepspeed.get("enable_deepspeed"):
        stage = str(deepspeed.get("zero_stage") or "0")[-1]
        zero: dict[str, object] = {"stage": int(stage) if stage.isdecimal() else 0}
        zero |= {key: deepspeed[key] for key in ("offload_optimizer", "offload_param") if deepspeed.get(key)}
        found["deepspeed"] = {"zero_optimization": zero, "bf16": {"enabled": "auto"}}
    return found
