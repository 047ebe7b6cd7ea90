"""Words of OpenRLHF's releases before 0.10, which had no dots, as those of today.

OpenRLHF 0.5.0 to 0.9.10: openrlhf/cli/train_ppo_ray.py, openrlhf/cli/train_dpo.py, openrlhf/cli/train_rm.py (options
and their defaults), openrlhf/models/actor.py (attention is eager unless --flash_attn says otherwise, before 0.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError

_WORDS = {
    "actor_num_nodes": "actor.num_nodes", "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "vllm_num_engines": "vllm.num_engines", "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization", "vllm_enable_sleep": "vllm.enable_sleep",
    "enforce_eager": "vllm.enforce_eager", "colocate_actor_ref": "train.colocate_actor_ref",
    "colocate_critic_reward": "train.colocate_critic_reward", "colocate_all_models": "train.colocate_all",
    "async_train": "train.async_enable", "deepspeed_enable_sleep": "ds.enable_sleep", "zero_stage": "ds.zero_stage",
    "adam_offload": "ds.adam_offload", "zpg": "ds.zpg", "load_in_4bit": "ds.load_in_4bit",
    "use_liger_kernel": "ds.use_liger_kernel", "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "ring_attn_size": "ds.ring_attn_size", "lora_rank": "ds.lora.rank", "target_modules": "ds.lora.target_modules",
    "param_dtype": "ds.param_dtype", "packing_samples": "ds.packing_samples", "enable_ema": "train.enable_ema",
    "micro_train_batch_size": "train.micro_batch_size", "micro_rollout_batch_size": "rollout.micro_batch_size",
    "train_batch_size": "train.batch_size", "rollout_batch_size": "rollout.batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt", "max_len": "data.max_len",
    "generate_max_len": "rollout.max_new_tokens", "max_new_tokens": "rollout.max_new_tokens",
    "init_kl_coef": "algo.kl.init_coef", "use_kl_loss": "algo.kl.use_loss",
    "advantage_estimator": "algo.advantage.estimator", "reward_pretrain": "reward.model_name_or_path",
    "critic_pretrain": "critic.model_name_or_path", "remote_rm_url": "reward.remote_url",
    "agent_func_path": "train.agent_func_path", "use_dynamic_batch": "train.dynamic_batch_enable",
    "train_max_tokens_per_gpu": "train.max_tokens_per_gpu", "rollout_max_tokens_per_gpu": "rollout.max_tokens_per_gpu",
    "ref_pretrain": "ref.model_name_or_path", "ref_offload": "ref.offload",
    "attn_implementation": "ds.attn_implementation", "prompt_max_len": "data.prompt_max_len",
    "grad_accum_dtype": "ds.grad_accum_dtype",
}  # fmt: skip
_BOTH = {"ref_reward_offload": ("ref.offload", "reward.offload")}
SWITCHES = frozenset(
    {
        "bf16", "flash_attn", "gradient_checkpointing", "colocate_actor_ref", "colocate_critic_reward",
        "colocate_all_models", "vllm_enable_sleep", "deepspeed_enable_sleep", "enforce_eager", "async_train",
        "adam_offload", "packing_samples", "load_in_4bit", "use_liger_kernel", "enable_ema", "use_kl_loss",
        "use_dynamic_batch", "ref_reward_offload", "ref_offload",
    }
)  # fmt: skip
PASSED = (
    "save_", "load_", "logging", "eval", "ckpt", "use_wandb", "wandb", "use_tensorboard", "use_ms", "max_epochs",
    "num_episodes", "max_samples", "max_norm", "l2", "seed", "actor_learning", "critic_learning", "learning_rate",
    "lr_", "prompt_data", "dataset", "input_", "output_key", "label_key", "apply_chat", "tokenizer", "prompt_",
    "chosen_key", "rejected_key", "train_split", "normalize_reward", "gamma", "lambd", "eps_clip", "value_clip",
    "kl_", "temperature", "top_p", "beta", "ipo", "label_smoothing", "loss", "adam_betas", "ref_num", "critic_num",
    "reward_num", "vllm_sync", "enable_prefix", "disable_", "actor_init", "local_rank", "use_ds_universal",
    "value_head", "ptx_", "pretrain_data", "freezing", "ema_beta", "aux_loss", "perf", "policy_loss", "reward_clip",
    "dynamic_filtering", "full_determinism", "gradient_checkpointing_use", "overlap_comm", "grad_accum", "nll_loss",
    "lora_alpha", "lora_dropout", "ring_head", "save", "compute_fp32_loss", "margin_loss", "entropy_loss",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """What older words say in today's, and how the file spells these."""

    said: Mapping[str, object]
    spelt: Mapping[str, str]
    note: str = (
        "older words: planned as releases from 0.6.1 on take log-probabilities; those before hold a second copy of them"
    )


def older(said: Mapping[str, object], where: str, trained: str) -> Older | None:
    """Today's words of a command; None where it has them already. `trained` is what the trained model is called.

    InputError where a release cannot be told from what the command leaves out, whose type it decides.
    """
    if any("." in key for key in said) or "pretrain" not in said:
        return None
    names = {**_WORDS, "pretrain": f"{trained}.model_name_or_path"}
    names["gradient_checkpointing"] = f"{trained}.gradient_checkpointing_enable"
    found: dict[str, object] = {}
    for key, value in said.items():
        for name in _BOTH.get(key, (names.get(key, key),)):
            found[name] = value
    if "bf16" in said:
        found["ds.param_dtype"] = "bf16"
    elif "param_dtype" not in said:
        raise InputError(f"{where}: neither --bf16 nor --param_dtype: releases before 0.9 then train in fp32: say one")
    if "flash_attn" in said:
        found["ds.attn_implementation"] = "flash_attention_2"
    elif "attn_implementation" not in said and "bf16" in said:
        found["ds.attn_implementation"] = "eager"
    for key in ("bf16", "flash_attn"):
        found.pop(key, None)
    return Older(said=found, spelt={name: key for key, name in names.items()})
