"""Whose job a text or a table is, and the document of it."""

from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents import open_instruct, open_instruct_grpo, openrlhf, verl
from gpu_plan.planner.from_config.documents.shell import command_words
from gpu_plan.planner.from_config.documents.written import Written

_OPENRLHF = (openrlhf.PPO, openrlhf.DPO)


def of_script(text: str, where: str, model: str | None) -> Written | None:
    """The job that a shell script starts; None for one that starts none of these tools."""
    for module in _OPENRLHF:
        words = command_words(text, module)
        if words is not None:
            if model is not None:
                raise InputError(f"{where} names its models itself: leave {model} out")
            return openrlhf.of_command(words, where, module)
    words = command_words(text, open_instruct_grpo.MODULE)
    if words is not None:
        return open_instruct_grpo.of_command(words, where, model)
    for module in verl.MODULES:
        words = command_words(text, module)
        if words is not None:
            return verl.of_command(words, where, model)
    return None


def of_table(content: Mapping[str, object], where: str, model: str | None) -> Written | None:
    """The job that a YAML is; None for one of another tool."""
    if open_instruct.is_job(content):
        return open_instruct.of_table(content, where, model)
    return verl.of_table(content, where, model) if "actor_rollout_ref" in content else None
