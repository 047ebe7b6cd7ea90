"""ms-swift's GRPO as the recipe grpo: its words, their defaults, and how its trainer takes log-probabilities.

ms-swift 4.5 (3602360a): swift/rlhf_trainers/grpo_trainer.py (_get_logps_via_local_forward: logits of the completions
whole), swift/rlhf_trainers/args_mixin.py, swift/arguments/rlhf_args.py (_init_grpo: beta 0.04, _set_default: one step).
"""

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.workload.recipes import LOGITS, WHOLE

_USUAL_BETA = 0.04
_SHARE = "0.9"
"""swift/trainers/arguments.py: VllmArguments.vllm_gpu_memory_utilization."""
_REFUSED = {
    "log_entropy": "entropies of all logits are not in the recipe",
    "use_liger_kernel": "Liger's loss of it is not in the recipe",
    "teacher_model": "a teacher beside the rollout is not in the recipe",
}
_OTHERWISE = {
    "offload_model": "planned with the model on the device during the rollout",
    "offload_optimizer": "planned with the optimizer's state on the device during the rollout",
    "padding_free": "planned with padded samples",
    "generation_batch_size": "planned with a rollout for each optimizer step",
    "steps_per_generation": "planned with a rollout for each optimizer step",
}
_PASSED = (
    "reward_funcs", "reward_weights", "temperature", "top_k", "top_p", "repetition_penalty", "num_iterations", "delta",
    "epsilon_high", "advantage_estimator", "importance_sampling_level", "scale_rewards", "dynamic_sample", "system",
    "max_resample_times", "overlong_filter", "soft_max_length", "soft_cache_length", "log_completions", "loss_type",
    "external_plugins", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_enable_prefix_caching",
    "truncation_strategy", "kl_in_reward", "sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha",
)  # fmt: skip
"""Rates, rewards and words of the sampler: none changes what stands."""


def read_grpo(reading: Reading) -> None:
    """Puts the recipe's options in; InputError in one line for what it has not."""
    table = reading.table
    for key, because in _REFUSED.items():
        if table.peek(key) not in (None, False, "", "false"):
            raise InputError(f"{table.where}: {key}: {because}: leave it out to plan without")
    entropies = table.rate("top_entropy_quantile")
    if entropies is not None and entropies < 1:
        because = _REFUSED["log_entropy"]
        raise InputError(f"{table.where}: top_entropy_quantile: {because}: leave it out to plan without")
    reading.said.pop("seq-len", None)
    reading.set(LOGITS, WHOLE, "ms-swift's GRPO trainer")
    for option, key, usual in (
        ("prompt-len", "max_length", 512),
        ("completion-len", "max_completion_length", 512),
        ("generations", "num_generations", 8),
    ):
        found = table.count(key)
        reading.say(option, found or usual, f"{key}: {found}" if found else f"ms-swift's {key} is not given")
    _reference(reading)
    _engine(reading)
    models = table.names("reward_model")
    if models:
        reading.say("reward-model", models[0], f"reward_model: {models[0]}")
    if models and len(models) > 1:
        reading.approximate(f"reward_model: {len(models)} of them: planned with the first")
    for key in _PASSED:
        table.raw(key)
    for key, words in _OTHERWISE.items():
        value = table.raw(key)
        if value not in (None, False, "false"):
            reading.approximate(f"{key}: {value}: {words}")


def _reference(reading: Reading) -> None:
    beta = reading.table.rate("beta")
    adapts = "peft" in reading.said and reading.value("peft") != "none"
    weighs = (_USUAL_BETA if beta is None else beta) > 0
    where = ("adapters" if adapts else "kept") if weighs else "none"
    reading.say("reference", where, f"ms-swift's beta of {_USUAL_BETA:g}" if beta is None else f"beta: {beta:g}")


def _engine(reading: Reading) -> None:
    table = reading.table
    if not table.flag("use_vllm"):
        return
    mode = table.word("vllm_mode")
    if mode not in ("colocate", "server"):
        raise table.wrong("vllm_mode", "colocate or server")
    reading.say("vllm", mode, f"vllm_mode: {mode}")
    if mode == "server":
        reading.approximate("vllm_mode: server: its GPUs are counted among those that are named")
    share, ranks = table.rate("vllm_gpu_memory_utilization"), table.count("vllm_tensor_parallel_size")
    source = "ms-swift's default" if share is None else f"vllm_gpu_memory_utilization: {share:g}"
    reading.say("gpu-memory-utilization", _SHARE if share is None else f"{share:g}", source)
    if ranks is not None:
        reading.say("vllm-tp", ranks, f"vllm_tensor_parallel_size: {ranks}")
    if mode == "colocate":
        level = table.count("sleep_level", least=0) or 0
        reading.say("vllm-sleep", level > 0, f"sleep_level: {level}" if level else "ms-swift's default")
        if level == 1:
            reading.approximate("sleep_level: 1: vLLM's weights that wait in the node's RAM are not counted there")
