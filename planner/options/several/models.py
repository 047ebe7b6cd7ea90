"""Models of a job document."""

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.recipe.engine import COLOCATED_SHARE, SERVER_SHARE, EngineGiven
from gpu_plan.planner.options.settings import SETTINGS
from gpu_plan.planner.options.several.given import Between, Head, ModelGiven
from gpu_plan.planner.options.several.tables import Part, shown
from gpu_plan.planner.options.training.adapters import MOST_BESIDE
from gpu_plan.planner.serving.known import find_server, server_words
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.losses import LOSSES, VALUED
from gpu_plan.planner.workload.recipes import ENGINES

_WORDS = ("optimizer", "checkpointing", "peft", "lora_rank", "lora_targets")
_TRAINING = (*_WORDS, "sync_each_batch", "flat_parameters", "reduce_dtype", "frozen_adapters")
_SPREAD = ("precision", "strategy", "offload", "attention")
_DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "virtual_stages")
DEGREE_WORDS = dict(zip(_DEGREES, ("tp", "pp", "cp", "ep", "vpp"), strict=True))
"""Degrees of Megatron-core's own model by their keys, as the command line calls them."""
_ENGINE = ("where", "share", "sleep", "eager", "max_num_seqs", "max_num_batched_tokens", "copies")
_MEGATRON = "megatron."
_KEYS = (
    "model", "train", "head", "between", "loss", *_SPREAD, *_TRAINING, "engine", *_ENGINE, *_DEGREES, "settings",
)  # fmt: skip


def read_model(role: str, table: object, where: str) -> ModelGiven:
    """One model; InputError in one line for what makes no sense."""
    part = Part(table, f"{where}: models.{role}", _KEYS)
    model = part.text("model")
    if model is None:
        raise InputError(f'{part.where} says no model: add model = "owner/name", a folder or package.module:factory')
    trains, engine = part.flag("train"), _engine(part)
    if not trains:
        _refuse(part, _TRAINING, "is about training: add train = true, or leave it out")
    if engine is not None:
        if trains:
            raise InputError(f"{part.where}: an engine trains nothing: leave train out, and name the policy apart")
        what = f"is not {find_server(engine.engine).title}'s: it has share, tensor_parallel, sleep and where"
        _refuse(part, ("head", "between", "loss", "settings", *_SPREAD, *_DEGREES[1:]), what)
    elif part.text("strategy") is None:
        own = 'is about an engine, or about Megatron\'s workers: add engine, or strategy = "megatron"'
        _refuse(part, (*_DEGREES, "settings"), own)
    between = part.one_of("between", Between, Between.DEVICE)
    if between not in (Between.DEVICE, Between.HOST) and not trains:
        raise InputError(
            f"{part.where}: between = '{between}' is about what is trained: add train = true, or say 'host'"
        )
    return ModelGiven(
        role=role,
        model=model,
        trains=trains,
        head=part.one_of("head", Head, Head.OWN),
        between=between,
        engine=engine,
        words=_words(part),
        loss=_loss(part),
        syncs=part.flag("sync_each_batch"),
        flat=part.flag("flat_parameters"),
        megatron=_settings(part),
        reduced=_reduced(part),
        frozen_adapters=_frozen_adapters(part),
    )


def _words(part: Part) -> tuple[tuple[str, str], ...]:
    """What the options of the command line are called there."""
    found = []
    for key in (*_SPREAD, *_WORDS):
        value = str(part.count(key) or "") if key == "lora_rank" else part.text(key)
        if value:
            found.append((key.replace("_", "-"), value))
    if "engine" not in part:
        found += [(DEGREE_WORDS[key], str(degree)) for key in _DEGREES if (degree := part.count(key))]
    return tuple(found)


def _settings(part: Part) -> tuple[str, ...]:
    """Words of `--set`, of which a document has those of Megatron's workers; their values are read where they are
    used."""
    if "settings" not in part:
        return ()
    found = part.names("settings")
    for word in found:
        key, given, _ = word.partition("=")
        if not given or not key.startswith(_MEGATRON) or key not in SETTINGS:
            raise InputError(f"{part.where}: settings: {shown(word)}: write megatron.KEY=VALUE, as --set has them")
    return found


def _reduced(part: Part) -> str | None:
    found, known = part.text("reduce_dtype"), SETTINGS["dtype.reduce"].choices
    if found is not None and found not in known:
        raise InputError(f"{part.where}: reduce_dtype = {shown(found)} is unknown: use {' or '.join(known)}")
    return found


def _frozen_adapters(part: Part) -> int:
    found = part.count("frozen_adapters") or 0
    if found > MOST_BESIDE:
        raise InputError(f"{part.where}: frozen_adapters = {found}: write a number up to {MOST_BESIDE}")
    if found and (part.text("peft") or NO_ADAPTERS) == NO_ADAPTERS:
        raise InputError(f'{part.where}: frozen_adapters stand beside one that is trained: add peft = "lora"')
    return found


def _loss(part: Part) -> str | None:
    name = part.text("loss")
    if part.one_of("head", Head, Head.OWN) is Head.SHARED:
        if name not in (None, VALUED):
            raise InputError(f"{part.where}: head = 'shared' has a loss of its own, {VALUED}: leave loss out")
        return VALUED
    if name == VALUED:
        raise InputError(f'{part.where}: loss = {shown(name)} is of values too: add head = "shared"')
    if name is None:
        return None
    if part.one_of("head", Head, Head.OWN) is not Head.OWN:
        raise InputError(f"{part.where}: loss is about log-probabilities, and head gives one number: leave one out")
    if name not in LOSSES:
        raise InputError(
            f"{part.where}: loss = {shown(name)} is unknown: use {', '.join(LOSSES)}.{did_you_mean(name, LOSSES)}"
        )
    return name


def _engine(part: Part) -> EngineGiven | None:
    name = part.text("engine")
    if name is None:
        _refuse(part, _ENGINE, 'is about an engine: add engine = "vllm"')
        return None
    if name.lower() not in server_words():
        known = " and ".join(f'"{word}"' for word in server_words())
        raise InputError(f"{part.where}: engine = {shown(name)} is unknown: this version has {known}")
    mode = part.text("where") or ENGINES[0]
    if mode not in ENGINES:
        raise InputError(f"{part.where}: where = {shown(mode)} is unknown: use {', '.join(ENGINES)}")
    may_sleep = part.text_of("sleep") == "auto"
    sleeps = not may_sleep and part.flag("sleep")
    if (sleeps or may_sleep) and mode == "server":
        raise InputError(f"{part.where}: a server has GPUs of its own and need not sleep: leave sleep out")
    if "copies" in part and mode != "server":
        raise InputError(f'{part.where}: copies are of a server: add where = "server", or leave copies out')
    return EngineGiven(
        mode=mode,
        share=part.share("share", COLOCATED_SHARE if mode == "colocate" else SERVER_SHARE),
        tensor_parallel=part.count("tensor_parallel"),
        sleeps=sleeps,
        may_sleep=may_sleep,
        eager=part.flag("eager"),
        engine=name.lower(),
        sequences=part.count("max_num_seqs"),
        batched_tokens=part.count("max_num_batched_tokens"),
        copies=part.count("copies") or 1,
    )


def _refuse(part: Part, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if key in part:
            raise InputError(f"{part.where}: {key} {why}")
