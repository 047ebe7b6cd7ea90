"""How verl cuts its passes: samples of a rank, or their tokens; ranks that share a sequence.

verl 0.8.0.dev (b178a3cd): verl/workers/fsdp_workers.py (ActorRolloutRefWorker.__init__: what is said of all devices is
divided by their number), verl/utils/seqlen_balancing.py (rearrange_micro_batches: dynamic passes are of the samples'
own tokens).
"""

import math

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.asked import Asked
from gpu_plan.planner.from_config.documents.written import Cut
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.units import ceil_div

TOOL = "verl 0.8.0.dev"
ACTOR, ROLLOUT, REF, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "ref", "model"))
MOST, CUT = "ppo_max_token_len_per_gpu", "ulysses_sequence_parallel_size"
FORWARD = "forward_max_token_len_per_gpu"
MEGATRON = strategy_by(Engine.MEGATRON, stage=1).name
_DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
"""Of Megatron's workers: ranks that have the same samples."""


def rows(asked: Asked, whose: str) -> Cut:
    """What a pass of the update takes."""
    dynamic = f"{whose}.use_dynamic_bsz"
    if asked.flag(dynamic if asked.says(dynamic) else f"{ACTOR}.use_dynamic_bsz"):
        most = asked.count(f"{whose}.{MOST}") or 16384
        return {"max_tokens": most * sharing(asked), "samples": _updated(asked, whose)}
    return {"micro_batch": _per_device(asked, f"{whose}.ppo_micro_batch_size", whose)}


def whole(asked: Asked, own: int) -> int:
    """Samples of an optimizer step on all devices, in passes of so many: those that ranks cut count on each."""
    key = f"{ACTOR}.ppo_micro_batch_size"
    cut = asked.count(f"{ACTOR}.{CUT}") or 1
    passes = max(1, _updated(asked, ACTOR) * cut // _said_per_device(asked, key))
    return passes * own * ranks(asked)


def _updated(asked: Asked, whose: str) -> int:
    """Samples of a rank that one optimizer step takes."""
    key = f"{whose}.ppo_mini_batch_size"
    return _of_a_rank(asked, asked.count(key if asked.says(key) else f"{ACTOR}.ppo_mini_batch_size") or 256)


def _of_a_rank(asked: Asked, prompts: int) -> int:
    return max(1, prompts * (asked.count(f"{ROLLOUT}.n") or 1) // ranks(asked))


def _per_device(asked: Asked, key: str, whose: str) -> int:
    """Samples of one device's pass: said so, or of all devices under the older name; a share where ranks cut it.

    verl/workers/fsdp_workers.py: ActorRolloutRefWorker.__init__ divides those by the number of ranks.
    """
    cut = asked.count(f"{whose}.{CUT}") or 1
    return ceil_div(_said_per_device(asked, key), cut)


def _said_per_device(asked: Asked, key: str) -> int:
    found, whole = asked.count(f"{key}_per_gpu"), asked.count(key)
    if found is None and whole is None:
        raise InputError(f"{asked.where}: {key}_per_gpu is missing, and verl has no default")
    if found is not None or whole is None:
        return found or 1
    asked.older = f"{key} is an older verl's word: what the file leaves out is taken from {TOOL}"
    if whole < ranks(asked):
        raise InputError(f"{asked.where}: {key} is {whole}, of {ranks(asked)} devices: it must give each one")
    return whole // ranks(asked)


def devices(asked: Asked) -> int:
    """Of all nodes."""
    return (asked.count("trainer.nnodes") or 1) * (asked.count("trainer.n_gpus_per_node") or 8)


def is_megatron(asked: Asked) -> bool:
    """Whether the actor's workers are Megatron's."""
    return str(asked.value(f"{ACTOR}.strategy")).lower() == MEGATRON


def copy_devices(asked: Asked) -> int:
    """Devices that have the same samples: one under FSDP."""
    keys = (f"{ACTOR}.megatron.{key}" for key in _DEGREES) if is_megatron(asked) else ()
    return math.prod(asked.count(key) or 1 for key in keys)


def ranks(asked: Asked) -> int:
    """Data parallel ones, among which samples are divided."""
    return max(1, devices(asked) // copy_devices(asked))


def sharing(asked: Asked) -> int:
    """Ranks of Megatron's workers that share a sequence: a dynamic batch has the tokens of all of them."""
    return asked.count(f"{ACTOR}.megatron.{_DEGREES[-1]}") or 1 if is_megatron(asked) else 1


def scored(asked: Asked, whose: str) -> Cut:
    """What a pass takes that makes log-probabilities of all that was generated."""
    dynamic = f"{whose}.log_prob_use_dynamic_bsz"
    if asked.flag(dynamic if asked.says(dynamic) else f"{ACTOR}.use_dynamic_bsz"):
        most = asked.count(f"{whose}.log_prob_max_token_len_per_gpu") or asked.count(f"{ACTOR}.{MOST}")
        return {"max_tokens": (most or 16384) * sharing(asked), "samples": generated(asked)}
    return {"micro_batch": _per_device(asked, f"{whose}.log_prob_micro_batch_size", ACTOR)}


def valued(asked: Asked, update: Cut) -> Cut:
    """What a pass of the critic takes that makes values."""
    if "max_tokens" in update:
        most = asked.count(f"critic.{FORWARD}")
        return {"max_tokens": most or update["max_tokens"], "samples": generated(asked)}
    keys = ("critic.forward_micro_batch_size", "critic.forward_micro_batch_size_per_gpu")
    return {"micro_batch": _per_device(asked, keys[0], "critic")} if any(map(asked.says, keys)) else update


def rewarded(asked: Asked) -> Cut:
    """What a pass of the reward model takes; tokens are the critic's where it does not say its own."""
    dynamic = "reward_model.use_dynamic_bsz"
    others = "critic.use_dynamic_bsz" if asked.says("critic.use_dynamic_bsz") else f"{ACTOR}.use_dynamic_bsz"
    asked.count("reward_model.micro_batch_size_per_gpu")
    if asked.flag(dynamic if asked.says(dynamic) else others):
        most = (asked.count(f"{whose}.{key}") for whose in ("reward_model", "critic") for key in (FORWARD, MOST))
        return {"max_tokens": next((one for one in most if one), 32768), "samples": generated(asked)}
    return {"micro_batch": _per_device(asked, "reward_model.micro_batch_size", "reward_model")}


def generated(asked: Asked) -> int:
    """Samples of a rank that one rollout makes."""
    return _of_a_rank(asked, asked.count("data.train_batch_size") or 1024)
