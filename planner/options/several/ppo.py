"""PPO by option words: the job document that `--recipe ppo` stands for. TRL 1.16 has no trainer of it."""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.recipe.engine import ENGINE_WORDS, EngineGiven, read_engine
from gpu_plan.planner.options.recipe.read import RECIPE_WORDS, lengths_of
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft

WHERE = "--recipe ppo"
"""What messages name in the place of a file."""
_SAID = ("task", "recipe", *RECIPE_WORDS, *ENGINE_WORDS, "seq-len")
"""Options whose meaning the document holds."""
_ALIKE = ("precision", "optimizer", "checkpointing", "attention", "peft", "lora-rank", "lora-targets")
"""Options that hold for policy and critic."""
_STRANGE = {
    "generations": "every completion is weighed by the critic, not against others of its prompt",
    "teacher": "it has no teacher",
    "stack": "its loop is that of a job document",
}


def left_words(words: Mapping[str, str]) -> dict[str, str]:
    """What is left for the search."""
    return {name: value for name, value in words.items() if name not in _SAID}


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
        "reward": {"model": words.get("reward-model", model), "head": "reward", **spread},
    }
    asked = ["policy"]
    if _keeps_reference(words):
        models["reference"] = {"model": model, **spread}
        asked.append("reference")
    phases = [
        {"name": "rollout", "does": "generate", "models": ["policy"]},
        {"name": "log-probabilities", "does": "log-probabilities", "models": asked},
        {"name": "values", "does": "forward", "models": ["critic"]},
        {"name": "rewards", "does": "forward", "models": ["reward"]},
        {"name": "update", "does": "train", "models": ["policy", "critic"]},
    ]
    if engine is not None:
        models["engine"] = {"model": model, **_engine_table(engine)}
        phases[0]["models"] = ["engine"]
        phases.insert(0, {"name": "weight sync", "does": "sync", "models": ["engine"]})
    return {"name": "PPO", "prompt_len": prompt, "completion_len": completion, "models": models, "phases": phases}


def _value(name: str, word: str) -> int | str:
    return int(word) if name == "lora-rank" and word.isdecimal() else word


def _keeps_reference(words: Mapping[str, str]) -> bool:
    """Whether a second copy of the policy is asked; under adapters the policy without them is."""
    peft = words.get("peft", NO_ADAPTERS).lower()
    adapts = peft in Peft.names() and Peft(peft).adapts
    found = words.get("reference", "adapters" if adapts else "kept").lower()
    if found not in ("kept", "adapters", "none"):
        raise UsageError(f"--reference {found[:40]!r} with {WHERE}: use kept, adapters or none")
    if found == "adapters" and not adapts:
        raise UsageError("--reference adapters is the model without its adapters: add --peft lora")
    return found == "kept"


def _engine_table(engine: EngineGiven) -> dict[str, Any]:
    table: dict[str, Any] = {"engine": engine.engine, "where": engine.mode, "share": engine.share}
    table |= {"sleep": True} if engine.sleeps else {}
    table |= {"eager": True} if engine.eager else {}
    return table | ({} if engine.tensor_parallel is None else {"tensor_parallel": engine.tensor_parallel})
