"""LLaMA-Factory's `stage: ppo`: a policy with a value head on its own trunk.

LLaMA-Factory of 2026-08 (ff6d4d12): train/ppo/{workflow,trainer}.py, train/trainer_utils.py (create_ref_model: none
beside LoRA, else the model again; create_reward_model: an adapter beside the trained one, a whole model, a service),
hparams/finetuning_args.py (reward_model_type lora), hparams/generating_args.py (max_new_tokens 1024).
"""

from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, adapters_on
from gpu_plan.planner.workload.recipes import PPO

_READ = (
    "stage", "ppo_epochs", "ppo_target", "ppo_score_norm", "ppo_whiten_rewards", "top_k", "top_p", "do_sample",
    "temperature", "repetition_penalty", "length_penalty",
)  # fmt: skip
"""Said by the recipe, or numbers that change no memory."""
_COMPLETION = 1024


def as_ppo(reading: Reading, source: str) -> None:
    """Puts the words of `--recipe ppo --critic shared` in the place of those that say who runs the loop.

    InputError for what LLaMA-Factory refuses, or a job document cannot say.
    """
    table = reading.table
    reading.said.pop("stack", None)
    for key in [key for key, said in reading.said.items() if said.setting and key.startswith("kernels.")]:
        reading.approximate(f"{reading.said.pop(key).source}: PPO is planned without it")
    prompt = reading.said.pop("seq-len")
    length = table.count("max_new_tokens")
    for key in _READ:
        table.raw(key)
    reading.say("recipe", PPO, source)
    reading.say("critic", "shared", "its value head stands on the policy's trunk")
    reading.say("prompt-len", prompt.value, prompt.source)
    reading.say(
        "completion-len",
        length or _COMPLETION,
        f"max_new_tokens: {length}" if length else "LLaMA-Factory's default",
    )
    _rewards(reading)
    _reference(reading)
    if (table.count("ppo_buffer_size") or 1) > 1:
        reading.approximate("ppo_buffer_size: more samples are rolled out before an update: each pass is as large")


def _adapts(reading: Reading) -> bool:
    return reading.value("peft") not in (None, NO_ADAPTERS)


def _rewards(reading: Reading) -> None:
    table = reading.table
    through = adapters_on(quantised=False)
    kind, named = table.word("reward_model_type") or through, table.word("reward_model")
    if kind not in (through, "full", "api"):
        raise table.wrong("reward_model_type", f"{through}, full or api")
    if named is None:
        raise reading.contradiction("stage: ppo without reward_model: LLaMA-Factory refuses it; add reward_model")
    if kind == through and not _adapts(reading):
        raise reading.contradiction(
            f"reward_model_type: {through}, its default, needs finetuning_type: {through}; say reward_model_type: full"
            " or api"
        )
    if kind == "api":
        reading.say("reward-model", "none", "reward_model_type: api")
    elif kind == "full":
        reading.say("reward-model", named, f"reward_model: {named}")
        for key in ("reward_model_adapters", "reward_model_quantization_bit"):
            if table.has(key):
                table.raw(key)
                reading.approximate(f"{key}: the reward model is planned whole, in 16 bits")
    else:
        reading.approximate(f"reward_model: {named}: planned as an adapter of the trained one's rank and targets")


def _reference(reading: Reading) -> None:
    """Beside LoRA the policy without its adapters, unless a model is named."""
    table, own = reading.table, reading.table.word("ref_model")
    if own is not None and own != reading.model:
        raise reading.contradiction(
            f"ref_model: {own}: PPO is planned with the policy's own model as reference; say the job as a job document"
        )
    for key in ("ref_model_adapters", "ref_model_quantization_bit"):
        if table.has(key):
            table.raw(key)
            reading.approximate(f"{key}: the reference is planned whole, in 16 bits")
    kept = own is not None or not _adapts(reading)
    source = f"ref_model: {own}" if own is not None else "LLaMA-Factory's reference"
    reading.say("reference", "kept" if kept else "adapters", source)
