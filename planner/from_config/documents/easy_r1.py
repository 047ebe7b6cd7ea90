"""EasyR1's command lines: a fork of verl with a configuration of its own.

EasyR1 0.3.3.dev (b44b311b): verl/trainer/main.py (`config=` is read, the command stands above it),
verl/trainer/config.py, verl/workers/{actor,critic,rollout,reward}/config.py (keys and their defaults),
verl/workers/fsdp_workers.py (fp32 weights but for the reference; flash attention; segments do not grow),
verl/workers/actor/dp_actor.py (dynamic passes hold as many tokens as a micro batch of whole samples; no entropy).
"""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents import verl
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.hydra import flat
from gpu_plan.planner.from_config.documents.written import Written
from gpu_plan.planner.from_config.reading import Fetch
from gpu_plan.planner.visible import visible

TOOL = "EasyR1 0.3.3.dev"
_ACTOR, _CRITIC, _ROLLOUT, _REF = "worker.actor", "worker.critic", "worker.rollout", "worker.ref"
_VERL, _MODEL = "actor_rollout_ref", "actor_rollout_ref.model"
_SCORED, _CAP = "log_prob_micro_batch", "log_prob_max_token_len_per_gpu"
_SAME = {
    "data.max_prompt_length": "data.max_prompt_length", "data.max_response_length": "data.max_response_length",
    "data.rollout_batch_size": "data.train_batch_size", "algorithm.adv_estimator": "algorithm.adv_estimator",
    "trainer.nnodes": "trainer.nnodes", "trainer.n_gpus_per_node": "trainer.n_gpus_per_node",
    f"{_ACTOR}.model.model_path": f"{_MODEL}.path", f"{_ACTOR}.model.lora.rank": f"{_MODEL}.lora_rank",
    f"{_ACTOR}.model.lora.target_modules": f"{_MODEL}.target_modules",
    f"{_ACTOR}.model.enable_gradient_checkpointing": f"{_MODEL}.enable_gradient_checkpointing",
    f"{_ACTOR}.padding_free": f"{_MODEL}.use_remove_padding",
    f"{_ACTOR}.global_batch_size": f"{_VERL}.actor.ppo_mini_batch_size",
    f"{_ACTOR}.micro_batch_size_per_device_for_update": f"{_VERL}.actor.ppo_micro_batch_size_per_gpu",
    f"{_ACTOR}.micro_batch_size_per_device_for_experience": f"{_VERL}.rollout.log_prob_micro_batch_size_per_gpu",
    f"{_ACTOR}.dynamic_batching": f"{_VERL}.actor.use_dynamic_bsz",
    f"{_ACTOR}.ulysses_size": f"{_VERL}.actor.ulysses_sequence_parallel_size",
    f"{_ACTOR}.fsdp.fsdp_size": f"{_VERL}.actor.fsdp_config.fsdp_size",
    f"{_ACTOR}.fsdp.torch_dtype": f"{_VERL}.actor.fsdp_config.model_dtype",
    f"{_ACTOR}.fsdp.use_orig_params": f"{_VERL}.actor.fsdp_config.use_orig_params",
    f"{_ACTOR}.offload.offload_params": f"{_VERL}.actor.fsdp_config.param_offload",
    f"{_ACTOR}.offload.offload_optimizer": f"{_VERL}.actor.fsdp_config.optimizer_offload",
    f"{_REF}.offload.offload_params": f"{_VERL}.ref.fsdp_config.param_offload",
    f"{_REF}.fsdp.enable_cpu_offload": verl.AWAY,
    f"{_CRITIC}.model.model_path": "critic.model.path",
    f"{_CRITIC}.model.enable_gradient_checkpointing": "critic.model.enable_gradient_checkpointing",
    f"{_CRITIC}.global_batch_size": "critic.ppo_mini_batch_size",
    f"{_CRITIC}.micro_batch_size_per_device_for_update": "critic.ppo_micro_batch_size_per_gpu",
    f"{_CRITIC}.micro_batch_size_per_device_for_experience": "critic.forward_micro_batch_size_per_gpu",
    f"{_CRITIC}.dynamic_batching": "critic.use_dynamic_bsz",
    f"{_CRITIC}.offload.offload_params": "critic.model.fsdp_config.param_offload",
    f"{_CRITIC}.offload.offload_optimizer": "critic.model.fsdp_config.optimizer_offload",
    f"{_ROLLOUT}.name": f"{_VERL}.rollout.name", f"{_ROLLOUT}.n": f"{_VERL}.rollout.n",
    f"{_ROLLOUT}.gpu_memory_utilization": f"{_VERL}.rollout.gpu_memory_utilization",
    f"{_ROLLOUT}.tensor_parallel_size": f"{_VERL}.rollout.tensor_model_parallel_size",
    f"{_ROLLOUT}.enforce_eager": f"{_VERL}.rollout.enforce_eager",
    f"{_ROLLOUT}.max_num_batched_tokens": f"{_VERL}.rollout.max_num_batched_tokens",
}  # fmt: skip
"""Its keys, and what verl calls the same."""
_USUAL: dict[str, object] = {
    "data.max_prompt_length": 512, "data.max_response_length": 512, "data.train_batch_size": 512,
    "algorithm.adv_estimator": "grpo", "trainer.nnodes": 1, "trainer.n_gpus_per_node": 8, f"{_MODEL}.lora_rank": 0,
    f"{_MODEL}.target_modules": "all-linear", f"{_MODEL}.enable_gradient_checkpointing": True,
    f"{_MODEL}.use_remove_padding": True, f"{_MODEL}.fused_kernel_options.impl_backend": "torch",
    f"{_VERL}.actor.ppo_mini_batch_size": 256, f"{_VERL}.actor.ppo_micro_batch_size_per_gpu": 4,
    f"{_VERL}.rollout.log_prob_micro_batch_size_per_gpu": 16, f"{_VERL}.actor.use_dynamic_bsz": True,
    f"{_VERL}.actor.ulysses_sequence_parallel_size": 1, f"{_VERL}.actor.strategy": "fsdp",
    f"{_VERL}.actor.fsdp_config.fsdp_size": -1, f"{_VERL}.actor.fsdp_config.model_dtype": "fp32",
    "critic.strategy": "fsdp", "critic.model.enable_gradient_checkpointing": True,
    "critic.ppo_micro_batch_size_per_gpu": 4, "critic.forward_micro_batch_size_per_gpu": 16,
    f"{_VERL}.rollout.name": "vllm", f"{_VERL}.rollout.n": 1, f"{_VERL}.rollout.gpu_memory_utilization": 0.6,
    f"{_VERL}.rollout.tensor_model_parallel_size": 2, f"{_VERL}.rollout.max_num_batched_tokens": 8192,
    f"{_VERL}.rollout.max_num_seqs": 1024, f"{_VERL}.rollout.free_cache_engine": True, verl.AWAY: False,
    verl.GROWS: False,
}  # fmt: skip
_REFUSED = {
    f"{_ACTOR}.fsdp.enable_cpu_offload": (False,), f"{_ACTOR}.fsdp.enable_full_shard": (True,),
    f"{_ACTOR}.optim.strategy": ("adamw",), f"{_ACTOR}.model.freeze_vision_tower": (False,),
    f"{_ACTOR}.fsdp.torch_dtype": (None, "fp32"), f"{_CRITIC}.fsdp.torch_dtype": (None, "fp32"),
    f"{_CRITIC}.fsdp.enable_cpu_offload": (False,), f"{_REF}.fsdp.enable_full_shard": (True,),
}  # fmt: skip
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None, "none": None}


def of_command(words: Sequence[str], where: str, model: str | None, fetch: Fetch | None) -> Written:
    """The job of a command. InputError in one line for what a document cannot say."""
    said = _said(words)
    file = said.pop("config", None)
    whole: dict[str, object] = {**(_file(str(file), where, fetch) if file is not None else {}), **said}
    for key, usual in _REFUSED.items():
        value = whole.get(key, usual[0])
        if value not in usual:
            raise InputError(f"{where}: {key} is {visible(str(value)[:40])}, which is not said in a job document")
    told = {_SAME[key]: value for key, value in whole.items() if key in _SAME and value is not None}
    refers = not whole.get("algorithm.disable_kl", False)
    told["algorithm.use_kl_in_reward"] = refers
    taken = dict(_USUAL)
    asked = Asked(where, told, taken, {name: key for key, name in _SAME.items()})
    _dynamic(asked, taken)
    asked.aside.append("where a prompt has images, what the vision tower holds beside its tokens is not counted")
    return verl.job(asked, model, TOOL)


def _said(words: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for word in words:
        key, given, value = word.partition("=")
        if given:
            found[key] = _WORDS.get(value.lower(), value.strip("'\""))
    return found


def _file(name: str, where: str, fetch: Fetch | None) -> Mapping[str, object]:
    if fetch is None or "$" in name:
        raise InputError(f"{where}: config={visible(name[:80])} says the rest, and is not there")
    return flat(fetch(name, "config"))


def _dynamic(asked: Asked, usual: dict[str, object]) -> None:
    """Passes by tokens: as many as a micro batch of samples of full length has."""
    length = (asked.count("data.max_prompt_length") or 512) + (asked.count("data.max_response_length") or 512)
    usual[f"{_VERL}.ref.log_prob_micro_batch_size_per_gpu"] = asked.value(f"{_VERL}.rollout.{_SCORED}_size_per_gpu")
    for rows, tokens in (
        (f"{_VERL}.actor.ppo_micro_batch_size_per_gpu", (f"{_VERL}.actor.ppo_max_token_len_per_gpu",)),
        (f"{_VERL}.rollout.{_SCORED}_size_per_gpu", tuple(f"{_VERL}.{of}.{_CAP}" for of in ("rollout", "ref"))),
        ("critic.ppo_micro_batch_size_per_gpu", ("critic.ppo_max_token_len_per_gpu",)),
        ("critic.forward_micro_batch_size_per_gpu", ("critic.forward_max_token_len_per_gpu",)),
    ):
        usual |= dict.fromkeys(tokens, (asked.count(rows) or 1) * length)
