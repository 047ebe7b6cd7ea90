"""Whose job a text or a table is, and the document of it."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents import (
    easy_r1,
    llamafactory,
    open_instruct,
    open_instruct_grpo,
    openrlhf,
    verl,
)
from gpu_plan.planner.from_config.documents.hydra import beneath
from gpu_plan.planner.from_config.documents.written import Written
from gpu_plan.planner.from_config.reading import Fetch
from gpu_plan.planner.from_config.shell.words import command_words, overrides

_OPENRLHF = (openrlhf.PPO, openrlhf.DPO, openrlhf.RM, openrlhf.SFT, openrlhf.ALONE)


def of_script(text: str, where: str, model: str | None, fetch: Fetch | None = None) -> Written | None:
    """The job that a shell script starts; None for one that starts none of these tools.

    `fetch` reads configurations that stand beside the script, where there is a folder.
    """
    for module in _OPENRLHF:
        words = command_words(text, module)
        if words is not None:
            return openrlhf.of_command(words, where, module, model)
    words = command_words(text, open_instruct_grpo.MODULE)
    if words is not None:
        return open_instruct_grpo.of_command(words, where, model)
    for module in verl.MODULES:
        words = command_words(text, module)
        if words is not None:
            return verl.of_command(words, where, model, beneath(module, words, fetch))
    easy = _one(overrides(text, "worker.actor."), where)
    if easy is not None:
        return easy_r1.of_command(easy[1], where, model, fetch)
    other = _one(overrides(text, "actor_rollout_ref."), where)
    if other is not None:
        return verl.of_command(other[1], where, model, beneath(other[0], other[1], fetch), other[0])
    return None


def _one(commands: Sequence[tuple[str, tuple[str, ...]]], where: str) -> tuple[str, tuple[str, ...]] | None:
    """The command, where there is one; InputError for several that differ."""
    if len(set(commands)) > 1:
        raise InputError(f"{where} starts {len(commands)} jobs whose options differ: keep one of them")
    return commands[0] if commands else None


def of_table(content: Mapping[str, object], where: str, model: str | None) -> Written | None:
    """The job that a YAML is; None for one of another tool."""
    if llamafactory.is_job(content, where):
        return llamafactory.of_table(content, where, model)
    if open_instruct.is_job(content):
        return open_instruct.of_table(content, where, model)
    return verl.of_table(content, where, model) if "actor_rollout_ref" in content else None
