"""Files that are recognised and not read: of another tool, or of a job that is more than supervised steps of one model.

Many of their keys are TrainingArguments' or DeepSpeed's too. A guess would be a plan of another job, told with
confidence: such files are refused by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_plan.planner.from_config.deciding import DECIDING
from gpu_plan.planner.from_config.shell.words import started
from gpu_plan.planner.from_config.signs import Content, Signs, first, given, keys, table_of, together


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """One such kind."""

    title: str
    signs: Signs
    """The keys of a file that only this kind has."""
    several: bool = False
    """Whether its jobs are of several models, which a job document describes."""


def _of_verl(content: Content) -> tuple[str, ...]:
    """Hydra's files of verl name its classes (verl/trainer/config)."""
    found = keys("actor_rollout_ref")(content) or together("data", "model", "optim", "trainer")(content)
    named = str(content.get("_target_", "")).startswith("verl.")
    return found or (("_target_",) if named else ())


def _of_nemo_rl(content: Content) -> tuple[str, ...]:
    """A policy, or what one inherits, beside the table of an algorithm."""
    algorithm = tuple(name for name in ("grpo", "dpo", "sft", "rm", "distillation") if table_of(content, name))
    named = "model_name" in table_of(content, "policy")
    return (*algorithm, "policy") if algorithm and (named or "cluster" in content or "defaults" in content) else ()


def _of_trlx(content: Content) -> tuple[str, ...]:
    """trlx/data/configs.py: TRLConfig."""
    return ("method", "train") if "name" in table_of(content, "method") and "train" in content else ()


TOOLS: tuple[Unread, ...] = (
    Unread(title="a verl configuration", signs=_of_verl, several=True),
    # nemo_rl/algorithms/{grpo,dpo,sft,rm,distillation}.py: MasterConfig
    Unread(title="a NeMo-RL configuration", signs=_of_nemo_rl, several=True),
    Unread(title="a prime-rl configuration", signs=together("orchestrator", "trainer"), several=True),
    Unread(title="a trlX configuration", signs=_of_trlx, several=True),
    Unread(
        # megatron/neox_arguments: its files hold DeepSpeed's keys beside its own, with dashes or underscores.
        title="a GPT-NeoX configuration",
        signs=first(
            keys("pipe_parallel_size", "pipe-parallel-size"), together("train_iters", "data_impl"),
            together("train-iters", "data-impl"),
        ),
    ),
    Unread(
        title="an LLM Foundry configuration",
        signs=first(keys("device_train_microbatch_size", "icl_tasks"), together("train_loader", "max_duration")),
    ),
    Unread(title="a Nanotron configuration", signs=together("parallelism", "tokens", "general")),
    Unread(
        # megatron/training/arguments.py; ms-swift and LLaMA-Factory hand them on to Megatron-Core.
        title="a Megatron-LM job",
        signs=first(
            given("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"),
            given("recompute_granularity", "recompute_method", "use_distributed_optimizer"),
        ),
    ),
    Unread(
        # lmflow/args.py: IterativeDPOAlignerArguments
        title="an LMFlow job of several rounds",
        signs=together("dataset_path_list", "initial_iter_idx"),
    ),
    Unread(
        # swift/ray: each group of devices is a table, and Megatron-Core trains
        title="an ms-swift job on Ray",
        signs=together("train", "rollout", "rlhf_type"),
    ),
    # autotrain/parser.py: AutoTrainConfigParser
    Unread(title="an AutoTrain configuration", signs=together("task", "params", "project_name")),
    # build/accelerate_launch.py: what it trains with stands beside how it is launched
    Unread(title="an fms-hf-tuning job", signs=keys("accelerate_launch_args")),
    Unread(
        # opendelta/auto_delta.py; ChatGLM-6B's ptuning/arguments.py; peft's prompt learning: what is trained is none of
        # the model's own weights, and no plan has it.
        title="a training of prefixes, prompts or deltas",
        signs=given("delta_type", "pre_seq_len", "prefix_projection", "num_virtual_tokens", "prompt_tuning_init"),
    ),
    Unread(title="a mergekit configuration", signs=given("merge_method")),
)  # fmt: skip


def _of_several_losses(content: Content) -> tuple[str, ...]:
    """trl/trainer/dpo_config.py and its like have losses that SFTConfig's `loss_type` has not."""
    loss = content.get("loss_type")
    return () if loss in (None, "nll", "dft", "chunked_nll") else ("loss_type",)


JOBS: tuple[Unread, ...] = (
    Unread(
        # trl/trainer/{grpo,rloo}_config.py, trl/experimental/online_dpo/online_dpo_config.py; ms-swift says it in
        # a word.
        title="reinforcement learning",
        signs=given(
            "num_generations", "reward_funcs", "reward_weights", "reward_model_path", "use_vllm",
            "vllm_mode", "max_completion_length", "ppo_epochs", "num_ppo_epochs", "kl_coef",
            "reward_model_name_or_path", "rlhf_type",
        ),
    ),
    Unread(title="distillation", signs=given("teacher_model", "teacher_model_name_or_path", "kd_loss")),
    Unread(
        # trl/trainer/{dpo,kto}_config.py, trl/experimental/orpo/orpo_config.py, trl/experimental/cpo/cpo_config.py
        title="preference training",
        signs=first(
            given(
                "max_prompt_length", "precompute_ref_log_probs", "ref_model_init_kwargs", "rpo_alpha", "simpo_gamma",
                "desirable_weight", "undesirable_weight", "dpo_beta", "dpo_loss_type", "orpo_beta", "pref_beta",
                "pref_loss",
            ),
            given("beta"),
            _of_several_losses,
        ),
    ),
    Unread(
        # axolotl utils/schemas/config.py, trl/trainer/reward_config.py
        title="reward modelling", signs=given("reward_model", "process_reward_model", "center_rewards_coefficient"),
    ),
)  # fmt: skip


_LINES = {
    "openrlhf.cli": "OpenRLHF", "verl.trainer": "verl", "verl.experimental": "verl",
    "open_instruct/grpo": "open-instruct's GRPO", "megatron rlhf": "ms-swift's Megatron",
}  # fmt: skip
"""Modules that command lines of other tools start."""


def command_line(text: str, where: str) -> str:
    """What is said of a shell script, in one line: whose trainers it starts, and what to do."""
    tool = next((name for module, name in _LINES.items() if module in text), None)
    if tool is None:
        script = started(text)
        return (
            f"{where} is a shell script: name the configuration file that it gives, or plan the training script that it"
            f" starts (plan {script or 'SCRIPT.py'} --gpus SPEC -- ARGS)"
        )
    return (
        f"{where} is a command line of {tool}, whose trainers are its own, and no recipe runs them: write its models"
        " and phases as a job document (plan JOB.toml)"
    )


_MANY = 2
"""One may be a word of the data's or of a model's; two are a job that was not read."""


def strange(keys: Iterable[str]) -> tuple[str, ...]:
    """Those keys that decide memory in any tool, of what was not understood; none where they are too few to tell."""
    found = tuple(key for key in keys if key.rpartition(".")[2].rpartition(" ")[2] in DECIDING)
    return found if len(found) >= _MANY else ()


def first_of(kinds: tuple[Unread, ...], content: Content) -> tuple[Unread, tuple[str, ...]] | None:
    """The first of `kinds` that a file shows signs of, with the signs; None for none."""
    for kind in kinds:
        signs = kind.signs(content)
        if signs:
            return kind, signs
    return None
