"""Each model of a job document as it is found, with the head that the document gives it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.model.config_reader import vocabulary_of
from gpu_plan.planner.model.config_values import WITH_VALUE_HEAD
from gpu_plan.planner.model.source.resolve import ModelSource, config_digest, resolve
from gpu_plan.planner.options.several.given import Does, Head, JobGiven, ModelGiven

_CAUSAL = "ForCausalLM"
_HEADS = {
    Head.VALUE: "ForTokenClassification",
    Head.REWARD: "ForSequenceClassification",
    Head.SHARED: f"{_CAUSAL}{WITH_VALUE_HEAD}",
}


def find_sources(job: JobGiven, path: Path, where: str) -> dict[str, ModelSource]:
    """By role. Folders are named from the document's own; UnreachableError and InputError say which model."""
    found = {model.role: _found(model, path.parent, where) for model in job.models}
    _check_vocabularies(job, found, where)
    return found


def _found(model: ModelGiven, folder: Path, where: str) -> ModelSource:
    if model.model.endswith((".py", ".toml")):
        raise InputError(f"{where}: models.{model.role}: {model.model} is no model: name an id, a folder or a factory")
    beside = folder / model.model
    try:
        source = resolve(str(beside) if beside.is_dir() else model.model)
    except PlanError as error:
        raise type(error)(f"{where}: models.{model.role}: {error}") from None
    return source if model.head is Head.OWN else _with_head(source, model, where)


def _with_head(source: ModelSource, model: ModelGiven, where: str) -> ModelSource:
    """The model's trunk under a head of one number, as transformers has it for its type."""
    names = (source.config or {}).get("architectures")
    own = names[0] if isinstance(names, list) and names else ""
    if source.config is None or not own.endswith(_CAUSAL):
        raise InputError(
            f"{where}: models.{model.role}: head = '{model.head}' is about a language model of transformers, and"
            f" {source.id} is {own or 'none'}: leave head out"
        )
    config: dict[str, Any] = {**source.config, "architectures": [own.removesuffix(_CAUSAL) + _HEADS[model.head]]}
    if not model.head.speaks:
        config["num_labels"] = 1
    if config.get("pad_token_id") is None and not model.head.speaks:
        config["pad_token_id"] = 0
    # No checkpoint holds this head: what is stored says nothing of it.
    return replace(source, config=config, digest=config_digest(config), stored=None)


def as_it_speaks(source: ModelSource) -> ModelSource:
    """The model as it generates: without the value head that a document gave it."""
    names = (source.config or {}).get("architectures")
    if source.config is None or not isinstance(names, list) or not str(names[0]).endswith(WITH_VALUE_HEAD):
        return source
    config = {**source.config, "architectures": [str(names[0]).removesuffix(WITH_VALUE_HEAD)]}
    return replace(source, config=config, digest=config_digest(config))


def _check_vocabularies(job: JobGiven, found: dict[str, ModelSource], where: str) -> None:
    """InputError for a model whose log-probabilities are of other words than those of the one that is trained."""
    own = vocabulary_of(found[job.anchor.role].config)
    for phase in job.phases:
        if phase.does is not Does.LOG_PROBABILITIES:
            continue
        for role in phase.roles:
            other = vocabulary_of(found[role].config)
            if own is not None and other is not None and own != other:
                raise InputError(
                    f"{where}: {role} ({found[role].id}) has {other:,} words and {job.anchor.role}"
                    f" ({found[job.anchor.role].id}) {own:,}: {phase.name} compares them one by one; name a model of"
                    " the same vocabulary"
                )
