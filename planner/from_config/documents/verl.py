"""verl's command lines and its YAML.

verl 0.8.0.dev (b178a3cd): verl/trainer/config/ppo_trainer.yaml with what it takes in (defaults),
verl/workers/fsdp_workers.py (_build_model_optimizer: fp32 weights, the reference under FSDP's CPUOffload,
use_orig_params; param_offload around each phase, optimizer_offload around the update; set_expandable_segments but for
the rollout; no micro batch under no_sync; AsyncActorRolloutRefWorker),
verl/utils/seqlen_balancing.py (rearrange_micro_batches: dynamic passes are of the samples' own tokens),
verl/utils/torch_functional.py (logprobs_from_logits), verl/trainer/ppo/ray_trainer.py (fit: order of the passes),
verl/workers/rollout/vllm_rollout/vllm_async_server.py,
verl/workers/rollout/sglang_rollout/async_sglang_server.py (mem_fraction_static is gpu_memory_utilization).
"""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.hydra import flat, settled
from gpu_plan.planner.from_config.documents.of_verl import megatron
from gpu_plan.planner.from_config.documents.of_verl.cuts import (
    ACTOR,
    CUT,
    FORWARD,
    MEGATRON,
    MODEL,
    REF,
    ROLLOUT,
    TOOL,
    devices,
    is_megatron,
    rewarded,
    rows,
    scored,
    valued,
    whole,
)
from gpu_plan.planner.from_config.documents.written import Cut, Table, Written, phase
from gpu_plan.planner.strategy.known import strategy_by, unsharded
from gpu_plan.planner.strategy.traits import Engine, Offload, Traits
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.visible import visible
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.precisions import mixed_in

_SENT, _WIDTH = 12, 1024
"""Bytes that an element of the heads' width takes in six tensors of 16 bits."""
_REDUCED = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}
"""verl/utils/torch_dtypes.py: PrecisionType's words, of types in which gradients are reduced."""
MODULES = ("verl.trainer.main_ppo",)
_OF_MEGATRON = f"ppo_{MEGATRON}_trainer"
"""Its configuration for Megatron's workers."""
_USUAL: dict[str, object] = {
    f"{ACTOR}.strategy": "fsdp", f"{ACTOR}.ppo_mini_batch_size": 256, f"{ACTOR}.use_dynamic_bsz": False,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 16384, f"{ACTOR}.use_kl_loss": False,
    f"{ACTOR}.ulysses_sequence_parallel_size": 1, f"{ACTOR}.fsdp_config.fsdp_size": -1,
    f"{ACTOR}.fsdp_config.model_dtype": "fp32", f"{ACTOR}.fsdp_config.dtype": "bfloat16",
    f"{ROLLOUT}.gpu_memory_utilization": 0.5, f"{ROLLOUT}.tensor_model_parallel_size": 2, f"{ROLLOUT}.n": 1,
    f"{ROLLOUT}.free_cache_engine": True, f"{ROLLOUT}.max_num_batched_tokens": 8192, f"{ROLLOUT}.max_num_seqs": 256,
    f"{MODEL}.enable_gradient_checkpointing": True, f"{MODEL}.use_remove_padding": True, f"{MODEL}.lora_rank": 0,
    f"{MODEL}.target_modules": "all-linear", f"{MODEL}.fused_kernel_options.impl_backend": "torch",
    "data.max_prompt_length": 512, "data.max_response_length": 512, "data.train_batch_size": 1024,
    "critic.model.enable_gradient_checkpointing": True, "critic.strategy": "fsdp", "reward_model.strategy": "fsdp",
    "critic.ppo_max_token_len_per_gpu": 32768, "algorithm.adv_estimator": "gae", "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 1, "expandable_segments": True, "reference_offload": True,
}  # fmt: skip
_PASSED = (
    "data.", "trainer.", "algorithm.", "hydra", "defaults", "custom_reward_function", "reward_manager", "ray_kwargs",
    f"{ACTOR}.optim", "critic.optim", f"{ACTOR}.kl_loss", f"{ACTOR}.clip", f"{ACTOR}.entropy_from_logits",
    f"{ACTOR}.loss_agg", f"{ACTOR}.grad_clip", f"{ACTOR}.ppo_epochs", f"{ACTOR}.checkpoint",
    f"{ROLLOUT}.temperature", f"{ROLLOUT}.top_", f"{ROLLOUT}.val_kwargs", f"{ROLLOUT}.multi_turn",
    f"{ROLLOUT}.mode", f"{ROLLOUT}.agent", "critic.cliprange", "critic.grad_clip", "critic.ppo_epochs",
    "actor_rollout_ref.hybrid_engine", f"{MODEL}.trust_remote_code", "critic.model.trust_remote_code",
    f"{ROLLOUT}.server", "reward_model.reward_manager", "critic.model.use_remove_padding",
)  # fmt: skip
_TABLES = frozenset({
    "actor_rollout_ref", "data", "reward_manager", "critic", "reward_model", "reward", "algorithm", "trainer",
    "global_profiler", "transfer_queue", "ray_kwargs", "ray_init", "custom_reward_function", "hydra", "retriever",
    "sandbox_fusion", "distillation", "profiler",
})  # fmt: skip
"""Tables of verl's releases, and what a search engine beside the rollout is told (Search-R1)."""
_OWN_REWARDS = ("reward_model.prime_model", "reward_model.rm_type", "reward_model.prime_granularity")
"""PRIME's (verl/workers/fsdp_workers.py: PRIMERewardModelWorker), which trains one."""
GROWS, AWAY = "expandable_segments", "reference_offload"
"""Not verl's words: whether segments of its allocator grow, and whether FSDP itself keeps the reference on the host."""
_STRATEGIES = {"fsdp": Engine.FSDP1, "fsdp2": Engine.FSDP2}
"""verl's words for its workers."""


def of_command(
    words: Sequence[str],
    where: str,
    model: str | None,
    file: Mapping[str, object] | None = None,
    module: str | None = None,
) -> Written:
    """The job of overrides, of those above `file`, which the command itself reads; `module` starts them, if not verl's.

    InputError in one line for what a document cannot say.
    """
    said: dict[str, object] = {}
    for word in words:
        key, given, value = word.lstrip("+").partition("=")
        if given and not key.startswith("-"):
            said[key] = _scalar(value)
        elif "$" in word and "[@]" in word:
            raise InputError(f"{where}: {word[:60]} is not set in the file: write its words there")
    named = next((at for at, word in enumerate(words) if word.startswith(("--config-name", "--config-path"))), None)
    told = "" if named is None else " ".join(words[named:])
    usual = {**_USUAL, **(megatron.USUAL if _OF_MEGATRON in told else {})}
    if named is not None and file is None and not any(own in told for own in ("ppo_trainer", _OF_MEGATRON)):
        shown = visible(" ".join(words[named : named + 2])[:80])
        raise InputError(f"{where}: {shown}: a file that is not beside it says the rest: bring it there")
    asked = Asked(where, said, usual if file is None else {**usual, **settled(file, said)})
    if module is not None:
        asked.aside.append(f"{visible(module[:80])} starts it: planned as verl's own main_ppo runs it")
    return job(asked, model)


def of_table(content: Mapping[str, object], where: str, model: str | None) -> Written:
    """The job of a YAML that takes in ppo_trainer's defaults."""
    taken = content.get("defaults")
    named = [str(one) for one in taken] if isinstance(taken, list) else []
    said = flat(content)
    usual = {**_USUAL, **(megatron.USUAL if any(_OF_MEGATRON in name for name in named) else {})}
    return job(Asked(where, {key: _referred(value, said) for key, value in said.items()}, usual), model)


def _referred(value: object, said: Mapping[str, object]) -> object:
    """What another key of the same file says, where a value names one (OmegaConf's interpolation)."""
    name = value[2:-1] if isinstance(value, str) and value.startswith("${") and value.endswith("}") else None
    return said.get(name, value) if name is not None else value


def _scalar(word: str) -> object:
    return {"true": True, "false": False, "null": None, "none": None}.get(word.strip("'\"").lower(), word.strip("'\""))


def job(asked: Asked, named: str | None, tool: str = TOOL) -> Written:
    """The document of what a tool was told in verl's words; InputError in one line for what it cannot say."""
    _check(asked)
    staged, estimator = is_megatron(asked), asked.text("algorithm.adv_estimator") or "gae"
    if staged:
        megatron.check(asked, estimator)
    notes: list[str] = list(asked.aside)
    cut = asked.count(f"{ACTOR}.{CUT}") or 1
    if not asked.flag(f"{MODEL}.use_remove_padding"):
        notes.append("planned as with padding removed: without, the answers' logits stand a second time")
    path = named or asked.model(f"{MODEL}.path")
    if path is None:
        raise InputError(f"{asked.where} names no model: plan from-config {asked.where} MODEL")
    update = rows(asked, ACTOR)
    if cut > 1:
        notes.append(_exchanged(asked, cut, update))
    actor = megatron.actor(asked, path) if staged else _actor(asked, path)
    models: dict[str, Table] = {"actor": actor, "engine": _engine(asked, path)}
    phases = [
        phase("weight sync", "sync", ["engine"]),
        phase("rollout", "generate", ["engine"]),
        phase("old log-probabilities", "log-probabilities", ["actor"], scored(asked, ROLLOUT)),
    ]
    if _refers(asked):
        if asked.count(f"{MODEL}.lora_rank"):
            notes.append("the reference is the actor without its adapters")
        else:
            models["reference"] = (megatron.reference if staged else _reference)(asked, path)
            between = scored(asked, REF)
            phases.append(phase("reference log-probabilities", "log-probabilities", ["reference"], between))
    if megatron.has_critic(asked, estimator):
        models["critic"] = megatron.critic(asked, path) if staged else _critic(asked, path)
        own = rows(asked, "critic")
        phases.append(phase("values", "forward", ["critic"], valued(asked, own)))
        phases.append(phase("update of the critic", "train", ["critic"], own))
    if asked.flag("reward_model.enable"):
        models["reward"] = _rewards(asked)
        phases.append(phase("rewards", "forward", ["reward"], rewarded(asked)))
    phases.append(phase("update", "train", ["actor"], update))
    for role in ("actor", "reference"):
        if role in models and not staged:
            models[role]["loss"] = _loss(asked)
    return Written(
        where=asked.where,
        tool=tool,
        name=f"{tool.split()[0]} {estimator}",
        prompt_len=asked.count("data.max_prompt_length") or 512,
        completion_len=asked.count("data.max_response_length") or 512,
        models=models,
        phases=phases,
        gpus=devices(asked),
        global_batch=whole(asked, update["micro_batch"]) if "micro_batch" in update else None,
        expandable_segments=asked.flag(GROWS),
        padding_removed=asked.flag(f"{MODEL}.use_remove_padding"),
        notes=(*notes, *(() if asked.older is None else (asked.older,))),
        not_read=tuple(asked.left((*_PASSED, *megatron.PASSED) if staged else _PASSED)),
    )


def _exchanged(asked: Asked, ranks: int, update: Cut) -> str:
    """What ranks that cut a sequence hold beside the plan, at most.

    verl/models/transformers/monkey_patch.py: _ulysses_flash_attention_forward, verl/utils/ulysses.py:
    all_to_all_tensor. Exchanged queries, and keys and values of as many heads at most, stand beside a layer's own
    while its output's pieces are sent, received and joined: six tensors of a rank's tokens by the heads' width.
    """
    longest = (asked.count("data.max_prompt_length") or 512) + (asked.count("data.max_response_length") or 512)
    tokens = update["max_tokens"] if "max_tokens" in update else update["micro_batch"] * longest
    return (
        f"passes that {ranks} ranks cut among them (Ulysses) are planned as a share of their samples on each; what they"
        f" exchange in attention is at most {format_gib(_SENT * tokens * _WIDTH)} GiB for each {_WIDTH:,} of the"
        " model's width, kept free with --set memory.reserve=GiB"
    )


def _refers(asked: Asked) -> bool:
    """Whether a reference is asked. Before use_kl_in_reward (verl of 2025-03) the rewards always had its divergence."""
    if asked.flag(f"{ACTOR}.use_kl_loss"):
        return True
    key = "algorithm.use_kl_in_reward"
    if asked.value(key) is None and (asked.older is not None or asked.knows("algorithm.kl_ctrl.kl_coef")):
        coefficient = asked.number("algorithm.kl_ctrl.kl_coef")
        return coefficient is None or coefficient > 0
    return asked.flag(key)


def _check(asked: Asked) -> None:
    """InputError for what would be planned as something else."""
    if not is_megatron(asked):
        sharded = "a document has FSDP's workers over all devices"
        asked.refuse(f"{ACTOR}.strategy", tuple(_STRATEGIES), sharded)
        asked.refuse("critic.strategy", tuple(_STRATEGIES), sharded)
        asked.refuse(f"{ACTOR}.fsdp_config.fsdp_size", (-1,), sharded)
        asked.refuse(f"{ACTOR}.fsdp_config.model_dtype", ("fp32",), "weights of another type than fp32 are not written")
    for key in (f"{MODEL}.use_liger", f"{MODEL}.enable_activation_offload"):
        if asked.flag(key):
            raise InputError(f"{asked.where}: {key} is not said in a job document")
    strange = next((key for key in asked.told() if "." in key and key.partition(".")[0] not in _TABLES), None)
    if strange is not None:
        raise InputError(
            f"{asked.where}: {visible(strange[:80])} is no word of verl's: what a fork's own loop makes of it is not in"
            " a document; take it out, and the rest is planned as verl runs it"
        )
    own = next((key for key in asked.told() if key.startswith(_OWN_REWARDS)), None)
    if own is not None:
        raise InputError(f"{asked.where}: {visible(own[:80])}: a fork's own reward model is not in a document")
    if asked.flag("reward_model.enable") and not _scores_by_worker(asked):
        raise InputError(f"{asked.where}: reward_model.enable: its engine would be a second one, a document has one")


def _actor(asked: Asked, model: str) -> Table:
    checkpointing = asked.flag(f"{MODEL}.enable_gradient_checkpointing")
    found = _trained(asked, model, f"{ACTOR}.strategy", f"{ACTOR}.fsdp_config", checkpointing)
    rank = asked.count(f"{MODEL}.lora_rank")
    if rank:
        targets = asked.text(f"{MODEL}.target_modules") or "all-linear"
        found |= {"peft": adapters_on(quantised=False), "lora_rank": rank, "lora_targets": targets}
    return found


def _critic(asked: Asked, path: str) -> Table:
    model = asked.text("critic.model.path") or path
    checkpointing = asked.flag("critic.model.enable_gradient_checkpointing")
    return {**_trained(asked, model, "critic.strategy", "critic.model.fsdp_config", checkpointing), "head": "value"}


def _trained(asked: Asked, model: str, strategy: str, config: str, checkpointing: bool) -> Table:
    """A model with its optimizer: what of it is moved to the host between its phases."""
    traits = _sharding(asked, strategy)
    found: Table = {
        "model": model,
        "train": True,
        "strategy": traits.name,
        "precision": mixed_in("bfloat16"),
        "checkpointing": "full" if checkpointing else "none",
        "attention": "flash",
    }
    if traits.shards_model:
        found["sync_each_batch"] = True
        found |= _reduced(asked, config)
    if traits.engine is Engine.FSDP1 and not asked.flag(f"{config}.use_orig_params"):
        found["flat_parameters"] = True
    weights, states = asked.flag(f"{config}.param_offload"), asked.flag(f"{config}.optimizer_offload")
    if asked.flag(f"{config}.offload_policy"):
        found["offload"] = "all"
    elif weights and states:
        found["between"] = "host"
    elif states:
        found["between"] = "weights"
    elif weights:
        raise InputError(
            f"{asked.where}: {config}.param_offload without optimizer_offload: weights go to the host and what they are"
            " trained with stays, which a document does not say"
        )
    return found


def _reduced(asked: Asked, config: str) -> Table:
    """FSDP reduces in fp32 unless mixed_precision says otherwise; 16 bits are what the gradients have anyway."""
    said = asked.text(f"{config}.mixed_precision.reduce_dtype") or "fp32"
    word = _REDUCED.get(said.lower())
    if word is None:
        raise InputError(
            f"{asked.where}: {config}.mixed_precision.reduce_dtype is {visible(said[:40])}: a document has float32 and"
            " bfloat16"
        )
    return {"reduce_dtype": word}


def _sharding(asked: Asked, key: str) -> Traits:
    """FSDP as the workers are asked for; of one device it shards nothing (torch: NO_SHARD), which is as without it."""
    count = devices(asked)
    return unsharded(1) if count == 1 else strategy_by(_STRATEGIES[str(asked.value(key))])


def _loss(asked: Asked) -> str:
    """How the actor's log-probabilities are taken, and those of the reference, which is the same class.

    Only a coefficient of the entropy has a gradient; triton's kernels are not mirrored.
    """
    if asked.flag(f"{MODEL}.use_fused_kernels"):
        asked.refuse(f"{MODEL}.fused_kernel_options.impl_backend", ("torch",), "a document has torch's own chunks")
        return "verl-0.8-fused"
    counted = asked.number(f"{ACTOR}.entropy_coeff") or asked.flag(f"{ACTOR}.calculate_entropy")
    if counted and asked.flag(f"{ACTOR}.entropy_checkpointing"):
        return "verl-0.8"
    return "verl-0.8-entropy" if counted else "verl-0.8"


def _reference(asked: Asked, model: str) -> Table:
    """FSDP's own CPUOffload, whatever param_offload says."""
    asked.flag(f"{REF}.fsdp_config.param_offload")
    strategy = _sharding(asked, f"{ACTOR}.strategy")
    away = {"offload": "all"} if Offload.ALL in strategy.offloads else {"between": "host"}
    if not asked.flag(AWAY):
        away = {"between": "host"} if asked.flag(f"{REF}.fsdp_config.param_offload") else {}
    return {
        "model": model,
        "strategy": strategy.name,
        **away,
        "precision": mixed_in("bfloat16"),
        "attention": "flash",
    }


def _scores_by_worker(asked: Asked) -> bool:
    """Whether rewards are an FSDP worker's, as before releases whose reward loop asks an engine: by its own words."""
    own = ("reward_model.model.fsdp_config", "reward_model.micro_batch_size", f"reward_model.{FORWARD}")
    return any(key.startswith(own) for key in asked.told()) and not asked.flag("reward_model.use_reward_loop")


def _rewards(asked: Asked) -> Table:
    """RewardModelWorker: a number for each token, in bf16, under FSDP's own CPUOffload whatever param_offload says."""
    asked.flag("reward_model.model.fsdp_config.param_offload")
    asked.flag("reward_model.model.use_remove_padding")
    strategy = _sharding(asked, "reward_model.strategy")
    away = {"offload": "all"} if Offload.ALL in strategy.offloads else {"between": "host"}
    model = asked.model("reward_model.model.path")
    if model is None:
        raise InputError(f"{asked.where}: reward_model.model.path is missing: name the reward model there")
    asked.older = asked.older or f"its reward model is an FSDP worker, as before {TOOL}'s reward loop"
    return {"model": model, "strategy": strategy.name, **away, "head": "value", "attention": "flash"}


def _engine(asked: Asked, model: str) -> Table:
    name = asked.text(f"{ROLLOUT}.name")
    if name not in ("vllm", "sglang"):
        raise InputError(f"{asked.where}: {ROLLOUT}.name is {name}: a document has vllm and sglang")
    found: Table = {
        "model": model,
        "engine": name,
        "share": asked.number(f"{ROLLOUT}.gpu_memory_utilization") or 0.5,
        "tensor_parallel": asked.count(f"{ROLLOUT}.tensor_model_parallel_size") or 1,
        "sleep": asked.flag(f"{ROLLOUT}.free_cache_engine"),
        "max_num_seqs": asked.count(f"{ROLLOUT}.max_num_seqs") or 256,
    }
    eager = f"{ROLLOUT}.enforce_eager"
    if name == "vllm":
        found["max_num_batched_tokens"] = asked.count(f"{ROLLOUT}.max_num_batched_tokens") or 8192
    # verl ff6978c14, 2025-08-08: graphs are captured by default since then.
    if asked.flag(eager) or (asked.older is not None and not asked.says(eager)):
        found["eager"] = True
    return found
