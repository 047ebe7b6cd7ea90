"""Jobs of several models that a file names: which recipe they are, and what it is told. Those without one are refused.

Meanings and defaults: trl 1.16 trainer/{dpo,kto,reward,grpo,rloo}_config.py; axolotl 0.18 utils/schemas/{config,
trl}.py, core/builders/rl.py; LLaMA-Factory 0.9.5 hparams/finetuning_args.py, train/{dpo,kto,rm,ppo}; ms-swift 4.5
arguments/rlhf_args.py; princeton-nlp/SimPO scripts/simpo_config.py.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.formats.trainers import ms_swift_grpo, oumi
from gpu_plan.planner.from_config.reading import Reading, of_several_models
from gpu_plan.planner.from_config.shell.launched import stem
from gpu_plan.planner.from_config.signs import Content
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.from_config.unread import JOBS, first_of
from gpu_plan.planner.visible import visible
from gpu_plan.planner.workload.recipes import GONE, LIGER, PPO, RECIPES, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedJob:
    """A recipe, and what in the file says so."""

    recipe: str
    source: str
    own: bool = False
    """Whether the tool's own trainer does it, which the recipe has a word for."""


_RL = {
    "dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "grpo": "grpo", "gdpo": "grpo", "simpo": "simpo",
}  # fmt: skip
"""Recipe by the word of axolotl's `rl`: gdpo is GRPO that adds its rewards up otherwise."""
_STAGES = {"dpo": "dpo", "kto": "kto", "rm": "reward", "ppo": PPO}
_RLHF = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "cpo": "cpo", "simpo": "simpo", "rm": "reward"}
_PURE = "simpo"
_SUPERVISED = ("cpo", {"cpo_alpha": 1.0, "sft_weight": 0.0})
"""What SimPO is beside a supervised loss of the wanted answer, and the weights of one with what they are left out."""
_WITHOUT = {
    "ebft": "no trainer of TRL's does it",
    "ppo": GONE["ppo"],
    "gkd": "its student generates, and the recipe distill trains on given completions",
}
_OWN_LOOPS = {
    "open-instruct": "open-instruct's own loop does it, not TRL's trainer",
    "torchtune": "torchtune's own loop does it, not TRL's trainer",
    "unsloth": "unsloth's own trainer does it",
    "litgpt": "no trainer of TRL's does it",
}
_TRL_KEYS = {
    "simpo": ("simpo_gamma", "gamma_beta_ratio"),
    "cpo": ("cpo_alpha",),
    "kto": ("desirable_weight", "undesirable_weight"),
    "reward": ("center_rewards_coefficient",),
    "dpo": ("precompute_ref_log_probs", "ref_model_init_kwargs", "rpo_alpha", "f_divergence_type", "sync_ref_model"),
    "grpo": (
        "num_generations", "reward_funcs", "reward_weights", "max_completion_length", "use_vllm", "vllm_mode",
        "epsilon",
    ),
}  # fmt: skip
"""Keys that one of TRL's configs has and the others have not; rloo shares grpo's."""
_NAMES = ("output_dir", "hub_model_id", "run_name", "wandb_project")
_SHARED = ("beta", "max_prompt_length", "loss_type", "generate_during_eval")
_WORDS = (
    "rl", "stage", "rlhf_type", "pref_loss", "pref_beta", "rl_beta", "reward_model", "loss_type", "simpo_gamma",
    "gamma_beta_ratio", "cpo_alpha", "sft_weight",
)  # fmt: skip
"""Read: what they say is the recipe, or a number that changes no memory."""
_RECIPES = ("rloo", "grpo", "orpo", "simpo", "cpo", "kto", "dpo", "reward")
"""By which a file may be called."""
_NICKNAMES = {"rm": "reward", "rewards": "reward", "ipo": "dpo"}
_LOSSES = {
    "dpo": frozenset((
        "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_pair",
        "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm", "kto_pair",
    )),
    "kto": frozenset(("kto", "apo_zero_unpaired")),
}  # fmt: skip
"""trl/trainer/dpo_trainer.py and kto_trainer.py, of 1.16 and of the releases before."""
_SUPERVISED_WORDS = frozenset(("sft", "finetune", "finetuning", "clm", "pretrain", "pretraining", "instruct"))
"""In a script's name: one model, its own labels."""
_PARTS = ("max_source_length", "max_target_length")
_USUAL_LENGTH = 1024
"""max_length of DPOConfig, KTOConfig and RewardConfig, and of ORPOConfig."""


def job_of(content: Content, kind: str, path: str, script: str | None = None) -> NamedJob | None:
    """The recipe that a file of this kind names, or that of the script whose options it gives; None for supervised
    steps of one model.

    UsageError or InputError in one line for a job that no recipe is.
    """
    if script is not None:
        return _by_script(script, content, path)
    if kind == "llamafactory-v1" and (named := _called(content, path)) is not None:
        raise of_several_models(f"{path}: {named.source}", "its own loop does it")
    if kind == "oumi":
        return _of_oumi(content, path)
    found = _by_word(content, kind, path) or (_of_trl(content, path) if kind == "trainer" else None)
    if found is not None:
        return _with_known_loss(found, content, path) if kind == "trainer" else found
    other = first_of(JOBS, content)
    if other is None:
        return None
    what, signs = other[0].title, ", ".join(other[1][:3])
    because = _OWN_LOOPS.get(kind)
    raise of_several_models(f"{path}: {what} ({signs})", because or "")


def _with_known_loss(job: NamedJob, content: Content, path: str) -> NamedJob:
    """The job; UsageError for a loss that is none of its trainer's in any release."""
    said, known = content.get("loss_type"), _LOSSES.get(job.recipe)
    words = [str(one) for one in (said if isinstance(said, list) else [said]) if one is not None]
    strange = next((word for word in words if known is not None and word not in known), None)
    if strange is None:
        return job
    trainer = RECIPES[job.recipe].trainer
    raise UsageError(
        f"{path}: loss_type: {visible(strange[:40])} is no loss of TRL's {trainer}, a trainer of its own computes it:"
        " plan the script that runs it (plan SCRIPT.py --gpus SPEC -- ARGS runs it to its first step)"
    )


def _by_script(script: str, content: Content, path: str) -> NamedJob | None:
    """By what a script is called, else by options that one trainer has; InputError where neither says what it does."""
    words = [_NICKNAMES.get(word, word) for word in stem(script)]
    gone = next((word for word in words if word in GONE), None)
    if gone is not None:
        raise of_several_models(f"{path}: {visible(script)}", GONE[gone])
    _check_offline(words, visible(script), path)
    named = next((recipe for recipe in _RECIPES if recipe in words), None)
    if named is not None:
        return NamedJob(recipe=named, source=visible(script))
    found = _of_trl(content, path)
    if found is not None or _SUPERVISED_WORDS & set(words):
        return found
    raise InputError(
        f"{path} starts {visible(script)}, whose name and options do not say what it trains by: plan it with"
        f" `plan {visible(script)} --gpus SPEC -- ARGS`, which runs it to its first step"
    )


def _check_offline(words: Collection[str], source: str, path: str) -> None:
    """UsageError for DPO on answers that the policy makes as it goes (trl/experimental/online_dpo)."""
    if "dpo" in words and "online" in words:
        because = "its policy generates the answers and another model compares them"
        raise of_several_models(f"{path}: {source}", because)


def _by_word(content: Content, kind: str, path: str) -> NamedJob | None:
    """Tools that say their job in a word."""
    if kind == "axolotl" and content.get("reward_model") is True:
        return NamedJob(recipe="reward", source="reward_model: true")
    key, known = {"axolotl": ("rl", _RL), "llamafactory": ("stage", _STAGES), "ms-swift": ("rlhf_type", _RLHF)}.get(
        kind, ("", {})
    )
    word = str(content.get(key) or "").lower()
    if not word or word in ("sft", "pt", "none"):
        return None
    loss = str(content.get("pref_loss") or "").lower()
    if kind == "llamafactory" and word == "dpo" and loss in ("orpo", "simpo"):
        return NamedJob(recipe=loss, source=f"pref_loss: {loss}")  # train/dpo/trainer.py: no supervised part
    if word in known:
        recipe = _supervised(content, "cpo_alpha") if word == _PURE else known[word]
        return NamedJob(recipe=recipe, source=f"{key}: {word}")
    if kind == "ms-swift" and word == "grpo":
        return NamedJob(recipe=word, source=f"{key}: {word}", own=True)
    because = _WITHOUT.get(word, "no recipe is known for it")
    raise of_several_models(f"{path}: {key}: {word}", because)


def _of_oumi(content: Content, path: str) -> NamedJob | None:
    """Its trainer's name."""
    word = oumi.trainer_of(content)
    if word in oumi.OTHERS:
        raise of_several_models(f"{path}: training.trainer_type: {word}", oumi.OTHERS[word])
    recipe = oumi.JOBS.get(word)
    return None if recipe is None else NamedJob(recipe=recipe, source=f"training.trainer_type: {word}")


def _supervised(content: Content, key: str) -> str:
    """SimPO alone, or with the supervised loss that a weight above 0 adds: CPOTrainer adds one unless told not to."""
    recipe, usual = _SUPERVISED
    weight = content.get(key, usual[key])
    return _PURE if weight in (0, 0.0, "0", "0.0") else recipe


def _of_trl(content: Content, path: str) -> NamedJob | None:
    """TRL's own files, which leave the trainer to the command: by keys of one of them, else by how it is called."""
    if any(key in content for key in ("teacher_model_name_or_path", "teacher_model")):
        return None
    if content.get("loss_type") == _PURE:
        return NamedJob(recipe=_supervised(content, "cpo_alpha"), source=f"loss_type: {_PURE}")
    said = _called(content, path)
    signs = {recipe: [key for key in keys if content.get(key) is not None] for recipe, keys in _TRL_KEYS.items()}
    for recipe, keys in signs.items():
        if keys:
            rloo = recipe == "grpo" and said is not None and said.recipe == "rloo"
            if recipe == _PURE:
                # SimPO's own scripts weigh that loss by sft_weight, TRL's by cpo_alpha.
                recipe = _supervised(content, "sft_weight" if "gamma_beta_ratio" in keys else "cpo_alpha")
            return said if rloo else NamedJob(recipe=recipe, source=f"{keys[0]} is {RECIPES[recipe].trainer}'s")
    shared = [key for key in _SHARED if content.get(key) is not None]
    if not shared or (shared == ["loss_type"] and content["loss_type"] in ("nll", "dft", "chunked_nll")):
        return None
    if said is not None:
        return said
    if "loss_type" in shared:
        return NamedJob(recipe="dpo", source=f"loss_type: {content['loss_type']}")
    folder = _by_folder(path)
    if folder is not None:
        return folder
    raise InputError(
        f"{path}: {', '.join(shared)} could be DPO's, KTO's or ORPO's, and nothing says which: name it in output_dir,"
        " or plan it with --recipe"
    )


def _called(content: Content, path: str) -> NamedJob | None:
    """A recipe's name in the names that a file gives or has."""
    for key, words in _names(content, path):
        _check_offline(words, f"online DPO by {key}", path)
        for recipe in _RECIPES:
            if recipe in words:
                return NamedJob(recipe=recipe, source=f"{recipe} by {key}")
    return None


def _by_folder(path: str) -> NamedJob | None:
    """The one recipe that the names of the file's folders say, as recipes/MODEL/dpo/full.yaml does."""
    words = set("_".join(path.lower().replace("\\", "/").split("/")[:-1]).replace("-", "_").split("_"))
    found = [recipe for recipe in _RECIPES if recipe in words]
    return NamedJob(recipe=found[0], source=f"{found[0]} by the file's folder") if len(found) == 1 else None


def _names(content: Content, path: str) -> Iterator[tuple[str, list[str]]]:
    """Words in the names that a file gives and has, each with what says it."""
    for key, text in (*((key, content.get(key)) for key in _NAMES), ("the file's name", path.rpartition("/")[2])):
        yield key, str(text or "").lower().replace("-", "_").replace("/", "_").replace(".", "_").split("_")


def as_recipe(reading: Reading, job: NamedJob) -> None:
    """Puts the recipe's options in the place of those that say who runs the loop."""
    table, recipe = reading.table, RECIPES[job.recipe]
    stack = reading.said.pop("stack", None)
    if stack is not None and stack.value not in ("trl", "trainer"):
        reading.approximate(f"{job.source}: planned as TRL's own {recipe.trainer} runs it")
    for key in [key for key, said in reading.said.items() if key == "fused-loss" or _of_one_model(key, said.setting)]:
        said = reading.said.pop(key)
        if said.value not in ("false", "none"):
            hint = f" (--set {key}=true has its layers)" if key == LIGER else ""
            reading.approximate(f"{said.source}: a recipe is planned without it{hint}")
    reading.say("recipe", job.recipe, job.source)
    if job.own:
        ms_swift_grpo.read_grpo(reading)
    for key in _WORDS:
        table.raw(key)
    _whole_batch(reading, recipe)
    if job.own:
        return
    rl = _table(reading, "trl")
    if recipe.rolls_out:
        _rollouts(reading, rl, job.recipe)
    else:
        _lengths(reading, table)
    _reference(reading, rl, job.recipe)


def _whole_batch(reading: Reading, recipe: Recipe) -> None:
    """Says what to ask where a tool's own trainer takes smaller micro batches than TRL's."""
    said, least = reading.said.get("micro-batch"), recipe.least_batch
    if said is not None and int(said.value) < least:
        reading.approximate(
            f"{said.source}: TRL's {recipe.trainer} takes no less than {least}: plan --micro-batch {least}"
        )


def _of_one_model(key: str, setting: bool) -> bool:
    return setting and key.startswith(("kernels.", "loss.", "eval.", "data.padding"))


def _table(reading: Reading, key: str) -> Table:
    """axolotl's own table of TRL's words; the top level of every other file."""
    inner = reading.table.raw(key) if isinstance(reading.table.peek(key), Mapping) else None
    return reading.inner(inner, key) if isinstance(inner, Mapping) else reading.table


def _lengths(reading: Reading, table: Table) -> None:
    prompt = table.count("max_prompt_length")
    parts = [table.count(key) for key in _PARTS]
    if all(parts) and not table.has("max_length"):  # scripts with a limit for each
        reading.said.pop("seq-len", None)
        length, prompt = sum(part or 0 for part in parts), prompt or parts[0]
        reading.say("seq-len", length, " + ".join(_PARTS))
        reading.say("prompt-len", prompt, f"{_PARTS[0]}: {prompt}")
        return
    length = table.count("max_length") or int(reading.value("seq-len") or _USUAL_LENGTH)
    source = f"max_length: {length}" if table.has("max_length") else "TRL's default"
    before = reading.said.pop("seq-len", None)
    reading.say("seq-len", length, source if before is None or table.has("max_length") else before.source)
    if prompt is not None and prompt < length - 1:
        reading.say("prompt-len", prompt, f"max_prompt_length: {prompt}")


def _rollouts(reading: Reading, table: Table, recipe: str) -> None:
    reading.said.pop("seq-len", None)
    for option, key, usual in (
        ("prompt-len", "max_prompt_length", 512),
        ("completion-len", "max_completion_length", 512),
        ("generations", "num_generations", RECIPES[recipe].generations),
    ):
        found = table.count(key)
        reading.say(option, found or usual, f"{key}: {found}" if found else "TRL's default")
    if not table.flag("use_vllm"):
        return
    # trl 0.14 to 0.16, trainer/grpo_config.py: vllm_device is a GPU of the node that no process of the training has.
    mode = table.word("vllm_mode") or ("server" if table.word("vllm_device") else "colocate")
    if mode not in ("colocate", "server"):
        raise table.wrong("vllm_mode", "colocate or server")
    reading.say("vllm", mode, "use_vllm: true")
    share, ranks = table.rate("vllm_gpu_memory_utilization"), table.count("vllm_tensor_parallel_size")
    if share is not None:
        reading.say("gpu-memory-utilization", f"{share:g}", f"vllm_gpu_memory_utilization: {share:g}")
    if ranks is not None:
        reading.say("vllm-tp", ranks, f"vllm_tensor_parallel_size: {ranks}")
    if mode == "colocate":
        sleeps = bool(table.flag("vllm_enable_sleep_mode"))
        reading.say("vllm-sleep", sleeps, "vllm_enable_sleep_mode: true" if sleeps else "TRL's default")


def _reference(reading: Reading, table: Table, recipe: str) -> None:
    if not RECIPES[recipe].refers:
        return
    adapts = "peft" in reading.said and reading.value("peft") != "none"
    if table.flag("precompute_ref_log_probs"):
        reading.say("reference", "precomputed", "precompute_ref_log_probs: true")
    elif RECIPES[recipe].rolls_out and table.peek("beta") is not None:
        beta = table.rate("beta")
        where = ("adapters" if adapts else "kept") if beta else "none"
        reading.say("reference", where, f"beta: {beta:g}")
    else:
        table.raw("beta")
