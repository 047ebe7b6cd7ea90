"""PPO by option words: the job document that `--recipe ppo` stands for. TRL 1.16 has no trainer of it."""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.recipe.engine import ENGINE_WORDS, EngineGiven, read_engine
from gpu_plan.planner.options.recipe.read import RECIPE_WORDS, lengths_of
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft

WHERE = "--recipe ppo"
"""What messages name in the place of a file."""
CRITICS = ("own", "shared")
"""Values of `--critic`: a model of its own beside the policy, or a value head on the policy's trunk."""
UNREWARDED = "none"
"""Value of `--reward-model` where a service or code of one's own rewards."""
_SAID = ("task", "recipe", "critic", *RECIPE_WORDS, *ENGINE_WORDS, "seq-len")
"""Options whose meaning the document holds."""
_ALIKE = ("precision", "optimizer", "checkpointing", "attention", "peft", "lora-rank", "lora-targets")
"""Options that hold for policy and critic."""
_ADAPTERS = ("peft", "lora-rank", "lora-targets")
_STRANGE = {
    "generations": "every completion is weighed by the critic, not against others of its prompt",
    "teacher": "it has no teacher",
    "stack": "its loop is that of a job document",
}


def left_words(words: Mapping[str, str]) -> dict[str, str]:
    """What is left for the search."""
    said = (*_SAID, *_ADAPTERS) if shares_trunk(words) else _SAID
    return {name: value for name, value in words.items() if name not in said}


def loop_of(words: Mapping[str, str]) -> str:
    """Whose loop the plan follows."""
    if shares_trunk(words):
        return (
            "TRL 1.16 has no PPO trainer: planned is the loop of TRL 0.9 as LLaMA-Factory runs it, which empties"
            " the allocator's cache between passes, planned is that it does not (docs/job-documents.md)"
        )
    return (
        "TRL 1.16 has no PPO trainer: planned is a job document of policy, critic, reference and reward model"
        " (docs/job-documents.md)"
    )


def ppo_table(words: Mapping[str, str], model: str, *, frozen: str | None) -> dict[str, Any]:
    """The document, as its TOML would be read: policy, critic, reference and reward model, a rollout and what follows.

    `frozen`: the strategy by which models without an optimizer are shared out, as OpenRLHF and verl do; None: whole on
    each device. UsageError for options that make no sense.
    """
    for name, why in _STRANGE.items():
        if name in words:
            raise UsageError(f"--{name} with {WHERE}: {why}; leave it out")
    prompt, completion = lengths_of(words)
    engine = read_engine(words, "ppo")
    spread = {} if frozen is None else {"strategy": frozen}
    alike = {name.replace("-", "_"): _value(name, words[name]) for name in _ALIKE if name in words}
    models: dict[str, Any] = {
        "policy": {"model": model, "train": True},
        "critic": {"model": model, "train": True, "head": "value", **alike},
    }
    if shares_trunk(words):
        return _shared_table(words, model, engine, spread)
    if rewarded := words.get("reward-model") != UNREWARDED:
        models["reward"] = {"model": words.get("reward-model", model), "head": "reward", **spread}
    asked = ["policy"]
    if _keeps_reference(words):
        models["reference"] = {"model": model, **spread}
        asked.append("reference")
    phases = [
        {"name": "rollout", "does": "generate", "models": ["policy"]},
        {"name": "log-probabilities", "does": "log-probabilities", "models": asked},
        {"name": "values", "does": "forward", "models": ["critic"]},
        *([{"name": "rewards", "does": "forward", "models": ["reward"]}] if rewarded else ()),
        {"name": "update", "does": "train", "models": ["policy", "critic"]},
    ]
    _put_engine(engine, model, models, phases)
    return {"name": "PPO", "prompt_len": prompt, "completion_len": completion, "models": models, "phases": phases}


def shares_trunk(words: Mapping[str, str]) -> bool:
    """Whether the critic is a head on the policy's own trunk; UsageError for another word."""
    found = words.get("critic", CRITICS[0]).lower()
    if found not in CRITICS:
        raise UsageError(f"--critic {found[:40]!r} with {WHERE}: use {' or '.join(CRITICS)}")
    return found == CRITICS[1]


def _shared_table(
    words: Mapping[str, str], model: str, engine: EngineGiven | None, spread: Mapping[str, str]
) -> dict[str, Any]:
    """One policy with both heads. Values come with its log-probabilities; the reward model is another adapter of the
    same base where the policy has adapters and no other model is named, as LLaMA-Factory has it.

    llamafactory/train/ppo/trainer.py: ppo_train (rollout and rewards by mini-batches), trl 0.9.6 PPOTrainer.step.
    """
    prompt, completion = lengths_of(words)
    through_adapters = _adapts(words) and "reward-model" not in words
    policy: dict[str, Any] = {"model": model, "train": True, "head": "shared"}
    models: dict[str, Any] = {"policy": policy}
    asked = ["policy"]
    policy |= {name.replace("-", "_"): _value(name, words[name]) for name in _ADAPTERS if name in words}
    if through_adapters:
        policy["frozen_adapters"] = 1
    elif words.get("reward-model") != UNREWARDED:
        models["reward"] = {"model": words.get("reward-model", model), "head": "shared", **spread}
    if _keeps_reference(words):
        models["reference"] = {"model": model, "head": "shared", **spread}
        asked.append("reference")
    rewarding = ["policy"] if through_adapters else [role for role in models if role == "reward"]
    batch = words.get("micro-batch", "")
    rollout = {"micro_batch": int(batch)} if batch.isdecimal() and int(batch) else {}
    phases: list[dict[str, Any]] = [
        {"name": "rollout", "does": "generate", "models": ["policy"], **rollout},
        *([{"name": "rewards", "does": "forward", "models": rewarding}] if rewarding else ()),
        {"name": "log-probabilities", "does": "log-probabilities", "models": asked},
        {"name": "update", "does": "train", "models": ["policy"]},
    ]
    _put_engine(engine, model, models, phases)
    return {"name": "PPO", "prompt_len": prompt, "completion_len": completion, "models": models, "phases": phases}


def _put_engine(engine: EngineGiven | None, model: str, models: dict[str, Any], phases: list[dict[str, Any]]) -> None:
    if engine is None:
        return
    models["engine"] = {"model": model, **_engine_table(engine)}
    phases[0]["models"] = ["engine"]
    phases.insert(0, {"name": "weight sync", "does": "sync", "models": ["engine"]})


def _value(name: str, word: str) -> int | str:
    return int(word) if name == "lora-rank" and word.isdecimal() else word


def _keeps_reference(words: Mapping[str, str]) -> bool:
    """Whether a second copy of the policy is asked; under adapters the policy without them is."""
    adapts = _adapts(words)
    found = words.get("reference", "adapters" if adapts else "kept").lower()
    if found not in ("kept", "adapters", "none"):
        raise UsageError(f"--reference {found[:40]!r} with {WHERE}: use kept, adapters or none")
    if found == "adapters" and not adapts:
        raise UsageError("--reference adapters is the model without its adapters: add --peft lora")
    return found == "kept"


def _adapts(words: Mapping[str, str]) -> bool:
    peft = words.get("peft", NO_ADAPTERS).lower()
    return peft in Peft.names() and Peft(peft).adapts


def _engine_table(engine: EngineGiven) -> dict[str, Any]:
    table: dict[str, Any] = {"engine": engine.engine, "where": engine.mode, "share": engine.share}
    table |= {"sleep": True} if engine.sleeps else {"sleep": "auto"} if engine.may_sleep else {}
    table |= {"eager": True} if engine.eager else {}
    return table | ({} if engine.tensor_parallel is None else {"tensor_parallel": engine.tensor_parallel})
