"""LLaMA-Factory v1's DPO: a loop of its own, whose rows hold both answers of a pair.

LLaMA-Factory of 2026-08 (ff6d4d12): src/llamafactory/v1/trainers/dpo_trainer.py (_init_ref_model: the sharded policy
copied whole, or the policy without its adapters; compute_loss; pref_loss), v1/plugins/trainer_plugins/distributed/
fsdp2.py (get_mp_policy: bf16, reduced in fp32), v1/core/base_trainer.py (torch's AdamW, no no_sync).
"""

import re
from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.hydra import flat
from gpu_plan.planner.from_config.documents.written import Table, Written, phase
from gpu_plan.planner.from_config.formats.loops.llamafactory_v1 import SIGNS
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.losses import PAIRED, UNREFERRED
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.precisions import PLAIN_NAME, mixed_in

TOOL = "LLaMA-Factory v1 of 2026-08"
_USUAL: dict[str, object] = {
    "micro_batch_size": 1, "cutoff_len": 2048, "pref_loss": "sigmoid", "enable_activation_checkpointing": True,
    "bf16": True, "cp_size": 1, "batching_strategy": "normal", "peft_config.r": 8,
}  # fmt: skip
_PASSED = (
    "train_dataset", "eval_dataset", "output_dir", "learning_rate", "max_steps", "num_train_epochs", "sample_backend",
    "max_new_tokens", "pref_", "simpo_gamma", "ld_alpha", "dpo_label_smoothing", "lr_scheduler_config", "max_grad_norm",
    "save_", "logging_", "seed", "peft_config", "dist_config.dcp_path", "template", "model_class", "kernel_config",
)  # fmt: skip
_NAME = re.compile(r"(^|[/_.\s-])dpo([/_.\s-]|$)")


def is_job(content: Mapping[str, object], where: str) -> bool:
    """Whether a table is a v1 file whose name, or that of its output, says DPO: the command that starts it does not."""
    names = (where.rpartition("/")[2], str(content.get("output_dir") or ""), str(content.get("run_name") or ""))
    return bool(SIGNS(content)) and any(_NAME.search(name.lower()) for name in names)


def of_table(content: Mapping[str, object], where: str, named: str | None) -> Written:
    """The job. InputError in one line for what a document cannot say."""
    asked = Asked(where, flat(content), _USUAL)
    path = named or asked.text("model")
    if path is None:
        raise InputError(f"{where} names no model: plan from-config {where} MODEL")
    _check(asked)
    adapts = asked.text("peft_config.name") == "lora"
    models: dict[str, Table] = {"policy": _policy(asked, path, adapts)}
    rows, length = asked.count("micro_batch_size") or 1, asked.count("cutoff_len") or 2048
    notes = ["rows hold both answers of a pair, one behind the other: half of cutoff_len is written as the prompt"]
    notes.append(f"the mask that keeps them apart, {length:,} squared for each row, is not counted")
    phases: list[Table] = []
    if asked.text("pref_loss") == "sigmoid" and adapts:
        notes.append("the reference is the policy without its adapters, asked between the policy's two passes")
    elif asked.text("pref_loss") == "sigmoid":
        models["reference"] = _reference(path)
        phases.append(phase("reference", "log-probabilities", ["reference"], rows))
        notes.append("the reference is asked between the policy's two passes: its logits are counted there too")
    return Written(
        where=where,
        tool=TOOL,
        name=f"LLaMA-Factory DPO ({asked.text('pref_loss')})",
        prompt_len=length - length // 2,
        completion_len=length // 2,
        models=models,
        phases=[*phases, phase("update", "train", ["policy"], rows)],
        gpus=None,
        global_batch=asked.count("global_batch_size"),
        notes=tuple(notes),
        not_read=tuple(asked.left(_PASSED)),
    )


def _check(asked: Asked) -> None:
    """InputError for what would be planned as something else."""
    asked.refuse("dist_config.name", ("fsdp2",), "a document of this DPO is written for FSDP2")
    asked.refuse("cp_size", (1,), "its DPO trainer takes whole sequences")
    asked.refuse("bf16", (True,), "a document of this DPO is written for bf16")
    asked.refuse("batching_strategy", ("normal",), "rows of cutoff_len are what a document has")
    asked.refuse("pref_loss", ("sigmoid", "orpo", "simpo"), "its trainer has sigmoid, orpo and simpo")
    asked.refuse("peft_config.name", (None, "lora"), "whole models and LoRA are in a document")
    for key in ("quant_config", "quant_config.name", "optim_config", "optim_config.name", "init_config.name"):
        if asked.says(key) and asked.value(key) is not None:
            raise InputError(f"{asked.where}: {key} is not said in a job document")
    asked.refuse("kernel_config.name", (None, "auto"), "Liger's kernels are not said in a job document")


def _policy(asked: Asked, path: str, adapts: bool) -> Table:
    chosen = by_word("adamw_torch")
    assert chosen is not None
    found: Table = {
        "model": path,
        "train": True,
        "strategy": strategy_by(Engine.FSDP2).name,
        "offload": "all" if asked.flag("dist_config.offload_params") else "none",
        "precision": mixed_in("bfloat16"),
        "checkpointing": "full" if asked.flag("enable_activation_checkpointing") else "none",
        "attention": "flash" if str(asked.value("flash_attn")).startswith("flash") else "sdpa",
        "optimizer": chosen.name,
        "sync_each_batch": True,
        "reduce_dtype": "float32",
        "loss": PAIRED if asked.text("pref_loss") == "sigmoid" else UNREFERRED,
    }
    if adapts:
        targets = asked.text("peft_config.target_modules") or "all"
        found |= {
            "peft": adapters_on(quantised=False),
            "lora_rank": asked.count("peft_config.r") or 8,
            "lora_targets": "all-linear" if targets == "all" else targets,
        }
    return found


def _reference(path: str) -> Table:
    """A copy of the policy as it is sharded, in fp32; its own passes, which are in bf16, are planned in fp32 too."""
    return {
        "model": path,
        "strategy": strategy_by(Engine.FSDP2).name,
        "precision": PLAIN_NAME,
        "loss": UNREFERRED,
    }
