"""open-instruct's YAML for preference optimisation.

open-instruct of 2026-08 (e6c3044a): open_instruct/dpo_tune_cache.py (main: weights in bf16, the reference's
log-probabilities are cached before the first step), open_instruct/dpo_utils.py (DPOExperimentConfig,
concatenated_forward: both answers of a pair in one pass), open_instruct/padding_free_collator.py
(calculate_per_token_logps).
"""

from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.written import Table, Written, phase
from gpu_plan.planner.from_config.formats.loops.open_instruct import SIGNS
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.losses import CACHED
from gpu_plan.planner.workload.optimizers.registry import by_word
from gpu_plan.planner.workload.precisions import mixed_in

TOOL = "open-instruct of 2026-08"
_OWN = (
    "num_epochs", "gamma_beta_ratio", "concatenated_forward", "dpo_use_paged_optimizer", "dpo_beta", "dpo_loss_type",
)  # fmt: skip
"""Keys of its preference loops that its supervised loop has not."""
_USUAL: dict[str, object] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_seq_length": 2048,
    "concatenated_forward": True, "lora_rank": 64, "fused_optimizer": True,
}  # fmt: skip
_PASSED = (
    "model_revision", "tokenizer", "dataset", "use_slow_tokenizer", "preprocessing", "learning_rate", "lr_scheduler",
    "warmup", "weight_decay", "num_epochs", "output_dir", "with_tracking", "report_to", "logging_steps", "loss_type",
    "beta", "dpo_", "checkpointing_steps", "keep_last", "try_", "hf_", "max_train_samples", "seed", "exp_name",
    "lora_alpha",
    "lora_dropout", "gs_", "oe_", "push_to_hub", "wandb", "do_not_randomize", "add_bos", "chat_template", "mixer_list",
    "local_cache", "timeout", "gamma_beta_ratio", "label_smoothing", "run_name", "use_fast", "eval_", "ref_logprobs",
    "reference_logprobs", "cache_", "skip_cache", "wandb_", "save_to_hub", "trust_remote_code",
)  # fmt: skip


def is_job(content: Mapping[str, object]) -> bool:
    """Whether a table is one of its preference loops."""
    return bool(SIGNS(content)) and (any(key in content for key in _OWN) or content.get("beta") is not None)


def of_table(content: Mapping[str, object], where: str, named: str | None) -> Written:
    """The job. InputError in one line for what a document cannot say."""
    asked = Asked(where, content, _USUAL)
    path = named or asked.text("model_name_or_path")
    if path is None:
        raise InputError(f"{where} names no model: plan from-config {where} MODEL")
    _check(asked)
    rows, steps = asked.count("per_device_train_batch_size") or 1, asked.count("gradient_accumulation_steps") or 1
    length = asked.count("max_seq_length") or 2048
    notes = ["both answers of a pair are samples: a micro batch of pairs is twice as many"]
    notes += ["the reference is asked before the first step, which is not counted"]
    if steps > 1:
        notes.append(f"gradient_accumulation_steps: {steps}: add --grad-accum {steps}")
    if asked.flag("packing"):
        notes.append("packing: planned with rows of max_seq_length")
    policy = _policy(asked, path)
    if "strategy" not in policy:
        notes.append("the launch command says how the model is spread: name it with --strategy")
    return Written(
        where=where,
        tool=TOOL,
        name="open-instruct DPO",
        prompt_len=length - length // 2,
        completion_len=length // 2,
        models={"policy": policy},
        phases=[phase("update", "train", ["policy"], 2 * rows)],
        gpus=None,
        notes=tuple(notes),
        not_read=tuple(asked.left(_PASSED)),
    )


def _check(asked: Asked) -> None:
    """InputError for what would be planned as something else."""
    asked.refuse("concatenated_forward", (True,), "a document's update is one pass, not one for each answer")
    for key in ("use_qlora", "use_liger_kernel", "load_balancing_loss"):
        if asked.flag(key):
            raise InputError(f"{asked.where}: {key} is not said in a job document")


def _policy(asked: Asked, path: str) -> Table:
    found: Table = {"model": path, "train": True, "precision": mixed_in("bfloat16"), "loss": CACHED}
    budget = asked.number("activation_memory_budget")
    whole = asked.flag("gradient_checkpointing") or (budget is not None and budget < 1)
    found["checkpointing"] = "full" if whole else "none"
    found["attention"] = "sdpa" if asked.says("use_flash_attn") and not asked.flag("use_flash_attn") else "flash"
    chosen = by_word("adamw_torch_fused" if asked.flag("fused_optimizer") else "adamw_torch")
    assert chosen is not None
    found["optimizer"] = chosen.name
    stage = asked.count("zero_stage")
    if stage:
        found["strategy"] = strategy_by(Engine.DEEPSPEED, stage=stage).name
        moved = "all" if asked.flag("offload_param") else "optimizer" if asked.flag("offload_optimizer") else "none"
        found["offload"] = moved
    if asked.flag("use_lora"):
        found |= {
            "peft": adapters_on(quantised=False),
            "lora_rank": asked.count("lora_rank") or 64,
            "lora_targets": "q_proj,o_proj,v_proj,k_proj,gate_proj,up_proj,down_proj",
        }
    return found
