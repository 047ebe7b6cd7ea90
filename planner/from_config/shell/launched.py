"""A training script that a shell script starts with TrainingArguments' options, as the table that they are.

transformers hf_argparser.py (HfArgumentParser), trl 1.16 cli/accelerate_config.py and cli/commands/training.py (`trl
dpo`, `--accelerate_config`), scripts/utils.py (TrlParser: `--config`), torch distributed/run.py, accelerate
commands/launch.py, deepspeed launcher/runner.py. Nothing of it is run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.from_config.harmless import harmless
from gpu_plan.planner.from_config.reading import Fetch
from gpu_plan.planner.from_config.shell.lines import scalar
from gpu_plan.planner.from_config.shell.words import launches
from gpu_plan.planner.visible import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One script with its options."""

    script: str
    content: Mapping[str, object]
    launcher: Mapping[str, object]
    """Accelerate's configuration; empty where the command names none."""
    launcher_file: str = ""
    processes: int | None = None


_SCRIPT = re.compile(r"[^\s$]{1,200}\.py")
_TRL = "trl"
_TRAINS = frozenset(("per_device_train_batch_size", "per_gpu_train_batch_size"))
"""TrainingArguments of which a script that trains with them is given one: its own default may be another."""
_OTHERWISE = frozenset(("eval", "evaluate", "infer", "inference", "predict", "generate", "merge", "export", "test"))
"""In a script's name: it does not train."""
_MIXED = "bf16"
_ALSO = {"use_lora": "use_peft", "lora_enable": "use_peft"}
"""What scripts of their own call a key of TRL's ModelConfig."""
_RANKS = frozenset(("lora_r", "lora_rank"))
_ENGINE = frozenset(("vllm_mode", "vllm_device"))
_FLASH = ("use_flash_attention", "use_flash_attn", "flash_attn", "use_flash_attention_2")
_PARTLY = re.compile(
    r"^(use_)?(freeze|unfreeze|tune|qlora|bits|quantization_bit|train_only|lisa|galore|badam|dora|vera|reft|adalora)(_|$)"
)
"""Options of scripts of their own by which a part of the model is trained, or its weights are stored otherwise."""
_OFF = (None, False, "false", "False", 0, 16, 32, "none", "None", "")
_HOLDER = re.compile(r"<[\w /.-]+>|\{\{?[\w. ]+\}?\}")
"""What stands where somebody is to write a value."""
_MODEL = ("model_name_or_path", "model_name", "model_id", "base_model_name")
_OWN = re.compile(
    r"(data|file|dir|path|root|folder|prompt|token|url|host|port|key|name|id|metric|seed|log)s?$|^(data|output|log)"
)
"""Options of scripts that say where something lies or how it is called."""
_COUNTS = {"nproc_per_node": True, "num_gpus": True, "num_processes": False}
"""How many processes, and whether on each node."""
_ZERO = {f"zero{stage}": {"deepspeed_config": {"zero_stage": stage}} for stage in (1, 2, 3)}
_PRESETS: Mapping[str, Mapping[str, object]] = {
    **{name: {"distributed_type": "DEEPSPEED", **said} for name, said in _ZERO.items()},
    "fsdp1": {
        "distributed_type": "FSDP",
        "fsdp_config": {"fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_use_orig_params": True},
    },
    "fsdp2": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True}},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
}
"""trl/accelerate_configs: what of each says how a model is spread; all have bf16 and eight processes."""
_LAUNCHED = frozenset(("config_file", "num_processes", "num_machines", "mixed_precision", "accelerate_config"))


def launched_of(text: str, where: str, fetch: Fetch, model: str | None) -> Launched | None:
    """The one training script that is started so; None for none.

    InputError where several are started whose options differ, or a value is not set that decides.
    """
    found = [one for one in (_one(words, where, fetch, model) for words in launches(text)) if one is not None]
    if not found:
        return None
    if any((one.script, one.content) != (found[0].script, found[0].content) for one in found):
        names = ", ".join(dict.fromkeys(one.script for one in found))
        raise InputError(
            f"{where} starts {len(found)} trainings whose options differ ({visible(names[:120])}): keep one of them"
        )
    return found[0]


def stem(script: str) -> list[str]:
    """The words of a script's name, of a module's last part, or of `trl dpo`."""
    name = script.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _one(words: Sequence[str], where: str, fetch: Fetch, model: str | None) -> Launched | None:
    at, script = _script(words)
    if script is None:
        return None
    said = _options(words[at + 1 :])
    launcher = _options(words[:at])
    if script.startswith(_TRL):
        launcher = {key: said.pop(key) for key in _LAUNCHED if key in said}
    try:
        content = {**_configured(said, words[at + 1 :], fetch), **said}
    except PlanError:
        return None  # what it trains by stands in a file that is not there
    content.pop("config", None)
    if not _TRAINS & content.keys() or _OTHERWISE & set(stem(script)):
        return None
    table = {key: _value(key, values, where, model) for key, values in content.items()}
    file, accelerate = _accelerate(launcher, fetch)
    return Launched(
        script=script,
        content=_own_words({key: value for key, value in table.items() if value is not None}, where, script),
        launcher=accelerate,
        launcher_file=file,
        processes=_processes(launcher),
    )


def _script(words: Sequence[str]) -> tuple[int, str | None]:
    """Where the script stands, and its name; of TRL's own command the word behind it."""
    if words[0] == _TRL and len(words) > 1:
        return 1, f"{_TRL} {words[1]}"
    for at, word in enumerate(words):
        if _SCRIPT.fullmatch(word) and not word.startswith("-"):
            return at, word
    modules = [at + 1 for at, word in enumerate(words[:-1]) if word in ("-m", "--module")]
    return (modules[-1], words[modules[-1]]) if modules else (0, None)


def _options(words: Sequence[str]) -> dict[str, object]:
    """Words behind each option, by its name with underscores."""
    found: dict[str, object] = {}
    own: list[str] | None = None
    for word in words:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            own = [value] if given else []
            found[name.replace("-", "_")] = own
        elif own is not None:
            own.append(word)
    return found


def _configured(said: Mapping[str, object], words: Sequence[str], fetch: Fetch) -> Mapping[str, object]:
    """What a file says that the script is given: `--config FILE`, or a file before all options."""
    named = said.get("config")
    if isinstance(named, list) and len(named) == 1 and "$" not in named[0]:
        return fetch(str(named[0]), "--config")
    if words and words[0].endswith((".yaml", ".yml", ".json")) and "$" not in words[0]:
        return fetch(words[0], "the command")
    return {}


def _value(key: str, values: object, where: str, model: str | None) -> object:
    """A value; None for one that is not set and decides nothing. InputError for one that does."""
    if not isinstance(values, list) or any(not isinstance(one, str) for one in values):
        return values
    if not values:
        return True
    unset = next((one for one in values if "$" in one or _HOLDER.fullmatch(one)), None)
    if unset is None:
        return scalar(values[0]) if len(values) == 1 else [scalar(one) for one in values]
    if key in _MODEL:
        if model is None:
            raise InputError(
                f"{where}: --{key} is {visible(unset[:60])}, which the file does not set: name the model behind it"
                f" (plan from-config {where} MODEL)"
            )
        return None
    if harmless(key) or _OWN.search(key):
        return None
    raise InputError(f"{where}: --{key} is {visible(unset[:60])}, which the script does not set: write its value")


def _own_words(table: dict[str, object], where: str, script: str) -> dict[str, object]:
    """Words of scripts of their own as the library's. InputError for what a recipe would plan as something else."""
    for key, value in table.items():
        if _PARTLY.match(key) and value not in _OFF:
            raise InputError(
                f"{where}: --{key} {visible(str(value)[:40])} is {visible(script)}'s own word for what is trained or"
                f" how it is stored: plan it with `plan {visible(script)} --gpus SPEC -- ARGS`, which runs it to its"
                " first step"
            )
    found = {_ALSO.get(key, key): value for key, value in table.items() if key not in _FLASH}
    if any(table.get(key) in (True, 1) for key in _FLASH):
        found.setdefault("attn_implementation", "flash_attention_2")
    if any(key in table for key in _ALSO) and found["use_peft"] in (True, 1) and not _RANKS & table.keys():
        raise InputError(f"{where}: adapters without lora_r: {visible(script)} has a rank of its own: add it")
    if table.get("use_vllm") in (True, 1) and not _ENGINE & table.keys() and not script.startswith(_TRL):
        raise InputError(
            f"{where}: use_vllm without vllm_mode: TRL before 1.0 takes GPUs of its own for it, later ones the"
            " trainer's: add --vllm_mode server or colocate"
        )
    return found


def _accelerate(launcher: Mapping[str, object], fetch: Fetch) -> tuple[str, Mapping[str, object]]:
    """Accelerate's configuration and its name: a file's, a preset's of TRL, with what the command itself says."""
    said = {key: str(values[0]) for key, values in launcher.items() if isinstance(values, list) and values}
    on = {key for key, values in launcher.items() if values == []}
    name = said.get("accelerate_config") or said.get("config_file") or ""
    found: dict[str, object] = {}
    if name in _PRESETS:
        found = {**_PRESETS[name], "mixed_precision": _MIXED, "num_processes": 8}
    elif name:
        found = dict(fetch(name, "--config_file"))
    if "use_deepspeed" in on:
        found |= {"distributed_type": "DEEPSPEED", "deepspeed_config": _plugin(said)}
    elif "use_fsdp" in on:
        found |= {"distributed_type": "FSDP", "fsdp_config": {k: v for k, v in said.items() if k.startswith("fsdp_")}}
    elif "multi_gpu" in on:
        found |= {"distributed_type": "MULTI_GPU"}
    if found and "mixed_precision" in said:
        found["mixed_precision"] = said["mixed_precision"]
    return name or "the command", found


def _plugin(said: Mapping[str, str]) -> Mapping[str, object]:
    keys = ("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file")
    return {key: said[key] for key in keys if key in said}


def _processes(launcher: Mapping[str, object]) -> int | None:
    """Processes on all nodes; None where nothing says."""
    said = {key: str(values[0]) for key, values in launcher.items() if isinstance(values, list) and values}
    nodes = _number(said.get("nnodes") or said.get("num_nodes") or "1") or 1
    for name, each in _COUNTS.items():
        count = _number(said.get(name))
        if count is not None:
            return count * nodes if each else count
    devices = said.get("include", "").partition(":")[2]
    return len(devices.split(",")) if devices else None


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdecimal() and 0 < int(word[:9]) < 2**20 else None
