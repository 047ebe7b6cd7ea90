"""OpenRLHF's command lines.

OpenRLHF 0.11.0: openrlhf/cli/train_ppo_ray.py (options, their defaults, and what it changes of them; which models share
devices), openrlhf/cli/train_dpo.py and train_sft.py, openrlhf/utils/deepspeed/deepspeed_utils.py (get_train_ds_config,
get_eval_ds_config: a model that is not trained is sharded under stage 3 alone; offload_deepspeed_states: all but the
weights), openrlhf/trainer/ppo_utils/experience_maker.py (order of the passes).
"""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.openrlhf_older import PASSED, SWITCHES, older
from gpu_plan.planner.from_config.documents.written import Table, Written, phase
from gpu_plan.planner.from_config.shell.words import options_of
from gpu_plan.planner.strategy.known import strategy_by, unsharded
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.adapters import adapters_on
from gpu_plan.planner.workload.precisions import mixed_in

TOOL = "OpenRLHF 0.11.0"
PPO, DPO, RM, SFT = (f"openrlhf.cli.train_{word}" for word in ("ppo_ray", "dpo", "rm", "sft"))
ALONE = "openrlhf.cli.train_ppo"
"""Until 0.6: all models on every device, the actor generates itself (openrlhf/cli/train_ppo.py)."""
_ON = frozenset(
    {
        "train.colocate_actor_ref", "train.colocate_critic_reward", "train.colocate_all", "vllm.enable_sleep",
        "vllm.enforce_eager", "train.async_enable", "ds.enable_sleep", "ds.adam_offload", "ds.packing_samples",
        "actor.gradient_checkpointing_enable", "model.gradient_checkpointing_enable", "train.dynamic_batch_enable",
        "ref.offload", "reward.offload", "ds.load_in_4bit", "ds.use_liger_kernel", "algo.kl.use_loss",
        "train.enable_ema",
    }
)  # fmt: skip
"""Switches: they take no value."""
_USUAL: dict[str, object] = {
    "actor.num_nodes": 1, "actor.num_gpus_per_node": 8, "vllm.tensor_parallel_size": 1,
    "vllm.gpu_memory_utilization": 0.95, "ds.zero_stage": 2, "ds.param_dtype": "bf16", "ds.zpg": 1,
    "ds.tensor_parallel_size": 1, "ds.ring_attn_size": 1, "ds.lora.rank": 0, "rollout.batch_size": 1024,
    "rollout.micro_batch_size": 1, "rollout.n_samples_per_prompt": 1, "train.batch_size": 128, "data.max_len": 2048,
    "train.max_tokens_per_gpu": 16192, "train.micro_batch_size": 1, "algo.kl.init_coef": 0.01,
    "algo.advantage.estimator": "gae", "ds.attn_implementation": "flash_attention_2",
}  # fmt: skip
_BEFORE: dict[str, object] = {
    "train.micro_batch_size": 4, "rollout.micro_batch_size": 8, "data.prompt_max_len": 1024,
}  # fmt: skip
"""What releases before 0.10 took by themselves, where it is not what today's takes."""
_SCORED = "openrlhf-0.11"
"""Logits in fp32 and flash-attn's cross-entropy: openrlhf/models/{actor,utils}.py."""
_PASSED = ("ckpt.", "logger.", "data.", "algo.", "eval.", "train.max_epochs", "train.num_episodes", "train.seed")
_ALSO_PASSED = ("actor.adam", "critic.adam", "adam.", "reward.normalize", "vllm.sync_backend", "train.agent")
_PLACES = ("ref.num", "critic.num", "reward.num", "vllm.enable_prefix_caching", "vllm.num_engines")


def of_command(words: Sequence[str], where: str, module: str, model: str | None = None) -> Written:
    """The job; `model` takes the place of the trained one. InputError in one line for what a document cannot say."""
    said = options_of(words, _ON | SWITCHES)
    trained = "actor" if module in (PPO, ALONE) else "model"
    if model is not None:
        said |= {"pretrain" if "pretrain" in said else f"{trained}.model_name_or_path": model}
    before = older(said, where, trained)
    usual = dict(_USUAL if before is None else _USUAL | _BEFORE)
    asked = Asked(where, *((said, usual) if before is None else (before.said, usual, before.spelt)))
    if before is not None:
        asked.older = before.note
    if module == ALONE:
        usual |= {"train.colocate_all": True}
        return replace(_ppo(asked), gpus=None)
    if module == PPO:
        return _ppo(asked)
    if module == SFT:
        usual |= {"train.micro_batch_size": 8}
        return _supervised(asked)
    usual |= {"data.max_len": 512, "train.micro_batch_size": 8 if module == DPO or before is not None else 1}
    return _dpo(asked) if module == DPO else _rewards(asked)


def _ppo(asked: Asked) -> Written:
    _alone(asked)
    if asked.flag("train.async_enable"):
        raise InputError(f"{asked.where}: train.async_enable: a rollout beside the update is not in a document")
    _check(asked)
    notes: list[str] = []
    together = asked.flag("train.colocate_all")
    devices = (asked.count("actor.num_nodes") or 1) * (asked.count("actor.num_gpus_per_node") or 1)
    actor = _needed(asked, "actor.model_name_or_path")
    models: dict[str, Table] = {"actor": _trained(asked, actor, "actor.gradient_checkpointing_enable")}
    phases: list[Table] = []
    engine, taken = _engine(asked, actor, together)
    models |= engine
    scored = ["actor"]
    if (asked.number("algo.kl.init_coef") or 0) > 0:
        if together or asked.flag("train.colocate_actor_ref"):
            models["reference"] = _frozen(asked, actor, "ref.offload")
            scored.append("reference")
        else:
            notes.append("the reference lies on GPUs of its own: left out")
    judged = _judges(asked, models, together, notes)
    rows, passes = _rows(asked, notes)
    phases.append(phase("rollout", "generate", ["engine"] if engine else ["actor"], None if engine else passes))
    if judged:
        phases.append(phase("rewards and values", "forward", judged, passes))
    phases.append(phase("log-probabilities", "log-probabilities", scored, passes))
    trained: list[str] = [role for role in ("actor", "critic") if role in models]
    phases.append(phase("update", "train", trained, rows))
    if engine:
        phases.append(phase("weight sync", "sync", ["engine"]))
    for role in scored:
        models[role]["loss"] = _SCORED
    prompt, answer = _lengths(asked, notes)
    return Written(
        where=asked.where,
        tool=TOOL,
        name=f"OpenRLHF {asked.text('algo.advantage.estimator')}",
        prompt_len=prompt,
        completion_len=answer,
        models=models,
        phases=phases,
        gpus=devices + taken,
        global_batch=asked.count("train.batch_size"),
        notes=_with_older(asked, notes),
        not_read=tuple(asked.left((*_PASSED, *_ALSO_PASSED, *_PLACES, *PASSED))),
    )


def _lengths(asked: Asked, notes: list[str]) -> tuple[int, int]:
    """Tokens of a prompt and of its answer: one limit for each, or one for both."""
    if asked.older is not None and (asked.says("data.prompt_max_len") or not asked.says("data.max_len")):
        return asked.count("data.prompt_max_len") or 1024, asked.count("rollout.max_new_tokens") or 1024
    half = (asked.count("data.max_len") or 2048) // 2
    answer = asked.count("rollout.max_new_tokens") or half
    notes.append(f"data.max_len is prompt and answer together: the prompt is taken as {2 * half - answer} tokens of it")
    return max(1, 2 * half - answer), answer


def _with_older(asked: Asked, notes: Sequence[str]) -> tuple[str, ...]:
    return (*notes, *(() if asked.older is None else (asked.older,)))


def _rewards(asked: Asked) -> Written:
    """A reward model trained on pairs (openrlhf/trainer/rm_trainer.py: both answers in one pass)."""
    _alone(asked)
    _check(asked)
    rows = 2 * (asked.count("train.micro_batch_size") or 1)
    length = asked.count("data.max_len") or 512
    model = _needed(asked, "model.model_name_or_path")
    trained = {**_trained(asked, model, "model.gradient_checkpointing_enable"), "head": "reward"}
    return _of_pairs(asked, "reward model", length, {"reward": trained}, [phase("update", "train", ["reward"], rows)])


def _alone(asked: Asked) -> None:
    """InputError for ways to spread a model that a document does not have."""
    for key in ("ds.tensor_parallel_size", "ds.ring_attn_size", "ds.zpg"):
        asked.refuse(key, (1,), "tensor parallel, ring attention and ZeRO++ beside other models are not in a document")


def _dpo(asked: Asked) -> Written:
    _alone(asked)
    _check(asked)
    policy = _needed(asked, "model.model_name_or_path")
    rows = 2 * (asked.count("train.micro_batch_size") or 8)
    length = asked.count("data.max_len") or 512
    reference = asked.text("ref.model_name_or_path") or policy
    models = {
        "policy": _trained(asked, policy, "model.gradient_checkpointing_enable"),
        "reference": _frozen(asked, reference, "ref.offload"),
    }
    for table in models.values():
        table["loss"] = _SCORED
    phases = [
        phase("reference", "log-probabilities", ["reference"], rows),
        phase("update", "train", ["policy"], rows),
    ]
    return _of_pairs(asked, "DPO", length, models, phases)


def _supervised(asked: Asked) -> Written:
    """One model (openrlhf/trainer/sft_trainer.py): its loss is the mean of the actor's own log-probabilities."""
    _alone(asked)
    _check(asked)
    model = _trained(asked, _needed(asked, "model.model_name_or_path"), "model.gradient_checkpointing_enable")
    rows, length = asked.count("train.micro_batch_size") or 8, asked.count("data.max_len") or 2048
    notes = ("data.max_len is a sample whole: half of it is written as its prompt",)
    models = {"policy": {**model, "loss": _SCORED}}
    return _of_samples(asked, "SFT", length, models, [phase("update", "train", ["policy"], rows)], 1, notes)


def _of_pairs(asked: Asked, name: str, length: int, models: dict[str, Table], phases: list[Table]) -> Written:
    """A job of chosen and rejected answers: `length` tokens are a prompt and one of them."""
    notes = ("both answers of a pair are samples: a micro batch of pairs is twice as many",)
    return _of_samples(asked, name, length, models, phases, 2, notes)


def _of_samples(
    asked: Asked,
    name: str,
    length: int,
    models: dict[str, Table],
    phases: list[Table],
    each: int,
    notes: tuple[str, ...],
) -> Written:
    """A job whose batches are of `each` samples of `length` tokens."""
    batch = asked.count("train.batch_size")
    return Written(
        where=asked.where,
        tool=TOOL,
        name=f"OpenRLHF {name}",
        prompt_len=length - length // 2,
        completion_len=length // 2,
        models=models,
        phases=phases,
        gpus=None,
        global_batch=None if batch is None else each * batch,
        notes=_with_older(asked, notes),
        not_read=tuple(asked.left((*_PASSED, *_ALSO_PASSED, *_PLACES, *PASSED))),
    )


def _check(asked: Asked) -> None:
    """InputError for what would be planned as something else."""
    asked.refuse("ds.param_dtype", ("bf16",), "a document of OpenRLHF's is written for bf16")
    for key in ("ds.load_in_4bit", "ds.use_liger_kernel", "train.enable_ema"):
        if asked.flag(key):
            raise InputError(f"{asked.where}: {asked.spelt(key)} is not said in a job document")


def _needed(asked: Asked, key: str) -> str:
    found = asked.text(key)
    if found is None:
        raise InputError(f"{asked.where} names no model: --{asked.spelt(key)} is missing")
    return found


def _trained(asked: Asked, model: str, checkpointing: str) -> Table:
    stage = asked.count("ds.zero_stage")
    found: Table = {"model": model, "train": True, "strategy": _strategy(stage)}
    if asked.flag("ds.adam_offload"):
        found["offload"] = "optimizer"
    found["precision"] = mixed_in("bfloat16")
    found["checkpointing"] = "full" if asked.flag(checkpointing) else "none"
    attention = str(asked.value("ds.attn_implementation"))
    if attention.startswith("flash") or attention == "eager":
        found["attention"] = "eager" if attention == "eager" else "flash"
    rank = asked.count("ds.lora.rank")
    if rank:
        found |= {
            "peft": adapters_on(quantised=False),
            "lora_rank": rank,
            "lora_targets": ",".join((asked.text("ds.lora.target_modules") or "all-linear").split()),
        }
    if asked.flag("ds.enable_sleep") and not asked.flag("ds.adam_offload"):
        found["between"] = "weights"
    return found


def _strategy(stage: int | None) -> str:
    """DeepSpeed's stage; without one every device holds everything."""
    return strategy_by(Engine.DEEPSPEED, stage=stage).name if stage else unsharded(2).name


def _frozen(asked: Asked, model: str, offload: str) -> Table:
    found: Table = {"model": model}
    if asked.count("ds.zero_stage") == 3:
        found["strategy"] = _strategy(3)
        if asked.flag(offload):
            found["offload"] = "all"
    elif asked.flag(offload):
        found["between"] = "host"
    return found


def _engine(asked: Asked, model: str, together: bool) -> tuple[dict[str, Table], int]:
    """vLLM, and the devices of its own that the document counts."""
    if not asked.count("vllm.num_engines"):
        return {}, 0
    ranks = asked.count("vllm.tensor_parallel_size") or 1
    share = asked.number("vllm.gpu_memory_utilization") or 0.95
    found: Table = {"model": model, "engine": "vllm", "share": share, "tensor_parallel": ranks}
    if asked.flag("vllm.enforce_eager"):
        found["eager"] = True
    if together:
        if asked.flag("vllm.enable_sleep"):
            found["sleep"] = True
        return {"engine": found}, 0
    copies = asked.count("vllm.num_engines") or 1
    return {"engine": {**found, "where": "server", **({"copies": copies} if copies > 1 else {})}}, copies * ranks


def _judges(asked: Asked, models: dict[str, Table], together: bool, notes: list[str]) -> list[str]:
    """Reward model and critic, where they lie on the actor's devices."""
    # Where these lie may be computed by the script: that they are there is all that is asked.
    reward, remote = asked.text("reward.model_name_or_path"), asked.value("reward.remote_url")
    agent = asked.value("train.agent_func_path")
    judged = reward is not None and remote is None and agent is None
    critic = None
    if asked.text("algo.advantage.estimator") == "gae":
        own = asked.text("critic.model_name_or_path")
        critic = own or (reward if judged else asked.text("actor.model_name_or_path"))
    named = [role for role, there in (("reward model", judged), ("critic", critic is not None)) if there]
    if not together:
        if named:
            notes.append(f"{' and '.join(named)}: on GPUs of their own, left out (train.colocate_all is not said)")
        return []
    found = []
    if judged and reward is not None:
        models["reward"] = {**_frozen(asked, reward.split(",")[0], "reward.offload"), "head": "reward"}
        found.append("reward")
    if critic is not None:
        models["critic"] = {
            **_trained(asked, critic.split(",")[0], "actor.gradient_checkpointing_enable"),
            "head": "value",
        }
        found.append("critic")
    return found


def _rows(asked: Asked, notes: list[str]) -> tuple[int, int]:
    """Samples of a pass: of the update, and of those between."""
    if not asked.flag("train.dynamic_batch_enable"):
        return asked.count("train.micro_batch_size") or 1, asked.count("rollout.micro_batch_size") or 1
    length = asked.count("data.max_len") or 2048
    update = asked.count("train.max_tokens_per_gpu") or 16192
    between = asked.count("rollout.max_tokens_per_gpu") or update
    notes.append(f"passes of at most {update} tokens are planned as samples of {length}")
    return max(1, update // length), max(1, between // length)
