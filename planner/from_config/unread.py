"""Files that are recognised and not read: of another tool, or of a job that is more than supervised steps of one model.

Many of their keys are TrainingArguments' too. A guess would be a plan of another job, told with confidence: such files
are refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Content = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """One such kind."""

    title: str
    signs: Callable[[Content], tuple[str, ...]]
    """The keys of a file that only this kind has."""


def _any_of(*keys: str) -> Callable[[Content], tuple[str, ...]]:
    return lambda content: tuple(key for key in keys if content.get(key) not in (None, "", False))


def _all_of(*keys: str) -> Callable[[Content], tuple[str, ...]]:
    return lambda content: keys if all(key in content for key in keys) else ()


def _components(content: Content) -> tuple[str, ...]:
    """torchtune names every part by its Python path (torchtune/config/_instantiate.py)."""
    return tuple(
        f"{key}._component_" for key, value in content.items() if isinstance(value, Mapping) and "_component_" in value
    )


TOOLS: tuple[Unread, ...] = (
    Unread(title="a torchtune recipe", signs=_components),
    Unread(title="a torchtitan configuration", signs=_all_of("model", "training", "parallelism")),
    Unread(title="a litgpt configuration", signs=_all_of("checkpoint_dir", "train", "precision")),
    Unread(title="a verl configuration", signs=_any_of("actor_rollout_ref", "algorithm.adv_estimator")),
    Unread(title="an ms-swift configuration", signs=_any_of("sft_type", "train_type", "tuner_type", "rlhf_type")),
    Unread(
        # open_instruct/finetune.py: FlatArguments; its loop is Accelerate's, its defaults are not the Trainer's.
        title="an open-instruct configuration",
        signs=_any_of(
            "use_flash_attn", "use_slow_tokenizer", "checkpointing_steps", "dataset_mixer_list", "hf_metadata_dataset",
        ),
    ),
    Unread(title="a mergekit configuration", signs=_any_of("merge_method")),
)  # fmt: skip

JOBS: tuple[Unread, ...] = (
    Unread(
        # trl/trainer/{grpo,rloo}_config.py, trl/experimental/online_dpo/online_dpo_config.py; axolotl and
        # LLaMA-Factory say it in a word.
        title="reinforcement learning",
        signs=_any_of(
            "num_generations", "reward_funcs", "reward_weights", "reward_model", "reward_model_path", "use_vllm",
            "vllm_mode", "max_completion_length", "ppo_epochs", "num_ppo_epochs", "kl_coef",
        ),
    ),
    Unread(
        # trl/trainer/{dpo,kto}_config.py, trl/experimental/orpo/orpo_config.py, trl/experimental/cpo/cpo_config.py
        title="preference training",
        signs=_any_of(
            "max_prompt_length", "precompute_ref_log_probs", "ref_model_init_kwargs", "rpo_alpha", "simpo_gamma",
            "desirable_weight", "undesirable_weight", "dpo_beta", "dpo_loss_type", "orpo_beta", "pref_beta",
            "pref_loss",
        ),
    ),
)  # fmt: skip


def first_of(kinds: tuple[Unread, ...], content: Content) -> tuple[Unread, tuple[str, ...]] | None:
    """The first of `kinds` that a file shows signs of, with the signs; None for none."""
    for kind in kinds:
        signs = kind.signs(content)
        if signs:
            return kind, signs
    return None


STAGES: Mapping[str, str] = {
    "rm": "reward modelling", "ppo": "reinforcement learning", "dpo": "preference training",
    "kto": "preference training", "orpo": "preference training", "simpo": "preference training",
    "ipo": "preference training", "grpo": "reinforcement learning", "gdpo": "reinforcement learning",
}  # fmt: skip
"""Job by the word that axolotl's `rl` and LLaMA-Factory's `stage` have for it."""
