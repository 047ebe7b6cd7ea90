"""Recipes: one entry for each job of several models that a trainer of TRL runs, with all that the planner knows of it.

trl 1.16: trainer/{sft,dpo,kto,reward,grpo,rloo}_trainer.py, experimental/{orpo,cpo,gkd}.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Recipe(NamedTuple):
    """One recipe."""

    name: str
    """Value of `--recipe`, and of the script under planner/capture/recipes."""
    trainer: str
    roles: tuple[str, ...]
    """What its models are called: the one that is trained first."""
    refers: bool = False
    """Whether a frozen copy of the model is asked for log-probabilities."""
    taught: bool = False
    """Whether another model teaches: `--teacher`."""
    least_batch: int = 1
    """Samples of the smallest micro batch that the trainer takes."""
    adapts: str = "CAUSAL_LM"
    """peft's name of the task."""
    rolls_out: bool = False
    """Whether it generates the completions that it trains on."""
    generations: int = 1
    """Completions of a prompt unless somebody says otherwise."""
    weighs_reference: bool = True
    """Whether the reference counts in its loss unless somebody says so: `beta` above 0 in the trainer's config."""


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="sft", trainer="SFTTrainer", roles=("model",)),
        Recipe(name="dpo", trainer="DPOTrainer", roles=("policy", "reference"), refers=True),
        Recipe(name="orpo", trainer="ORPOTrainer", roles=("policy",)),
        Recipe(name="cpo", trainer="CPOTrainer", roles=("policy",)),
        Recipe(name="simpo", trainer="CPOTrainer", roles=("policy",)),
        # KTOTrainer: "Actual (not effective) batch size must be > 1", for its estimate of the divergence.
        Recipe(name="kto", trainer="KTOTrainer", roles=("policy", "reference"), refers=True, least_batch=2),
        Recipe(name="reward", trainer="RewardTrainer", roles=("reward model",), adapts="SEQ_CLS"),
        Recipe(
            name="grpo",
            trainer="GRPOTrainer",
            roles=("policy", "reference"),
            refers=True,
            rolls_out=True,
            generations=8,
            weighs_reference=False,  # GRPOConfig.beta is 0
        ),
        Recipe(
            name="rloo",
            trainer="RLOOTrainer",
            roles=("policy", "reference"),
            refers=True,
            rolls_out=True,
            generations=2,
        ),
        Recipe(name="distill", trainer="GKDTrainer", roles=("student", "teacher"), taught=True),
    )
}
PPO = "ppo"
"""No trainer of TRL's any more: its words stand for a job document."""
GONE = {
    PPO: "its loop is TRL's PPO trainer of before 1.0, which TRL 1.16 has not: --recipe ppo plans a policy with a"
    " critic of its own, a job document any other"
}
"""What earlier releases of TRL had, and others still run."""
CALLED = {"rm": "reward", "ipo": "dpo", "gdpo": "grpo", "gkd": "distill", "reinforce": "rloo"}
"""Names that others have for a recipe's job: another loss of it, or another word."""
REFERENCES = ("none", "kept", "adapters", "precomputed")
"""Where the reference is: nowhere; a model of its own beside the policy; the policy without its adapters; asked
beforehand."""
ENGINES = ("colocate", "server")
"""Where vLLM generates: on the GPUs that train, or on some of its own (`vllm_mode`)."""


LIGER = "kernels.liger"
"""Key of `--set`: Liger's kernels for the layers of the model that is trained, TRL's `use_liger_kernel`."""

LOGITS, WHOLE = "recipe.logits", "whole"
"""Key of `--set`: how grpo takes log-probabilities, by tiles as TRL does or of whole logits as ms-swift does."""


def recipe_help() -> str:
    """What `--help` says of `--recipe`."""
    return f"TRL's trainers, their own code traced: {', '.join(RECIPES)}; {PPO}: a policy with a critic"
