"""Megatron-LM: the plan's arguments in a file of their own, which its pretrain_gpt.py is started with.

They are written when the plan is made (gpu_plan.planner.megatron.arguments), for a checkout of Megatron-LM: the folder
in which the command runs. Data, learning rate and length are the user's: words after the command are handed on.
"""

import itertools
import shlex

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import header
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import COMMAND_FILE
from gpu_plan.planner.errors import UsageError

_OWN = "data, learning rate and length: words of Megatron-LM after the command (--data-path, --lr, --train-iters)"


def planned_words(target: Target, engine: str) -> tuple[str, ...]:
    """Words of the plan's own command; UsageError for a plan whose model is not Megatron-core's."""
    strategy = target.strategy.name
    if not target.traits.own_model:
        raise UsageError(f"--to {engine} runs Megatron-core's own model: {strategy} is not planned for that")
    if not target.saved.plan.command:
        raise UsageError(f"--to {engine}: the plan has no command: make it again with this version")
    return tuple(shlex.split(target.saved.plan.command))


def launch_files(target: Target) -> LaunchFiles:
    """One shell file; `MEGATRON` names the checkout."""
    words = planned_words(target, "megatron-lm")
    command = tuple(itertools.dropwhile(_is_variable, words))
    environment = dict(word.split("=", 1) for word in itertools.takewhile(_is_variable, words))
    shown = " ".join(word if word in _PER_NODE else shlex.quote(word) for word in command)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    text = "\n".join(
        ["#!/bin/sh", f"{header(target.made_by)}set -e", *lines, 'cd "${MEGATRON:-.}"', f'exec {shown} "$@"', ""]
    )
    return LaunchFiles(
        engine="megatron-lm", files={COMMAND_FILE: text}, environment=environment, command=command, not_applied=(_OWN,)
    )


_PER_NODE = ("$NODE_RANK", "$HEAD_NODE")
"""Words that each node's shell fills in."""


def _is_variable(word: str) -> bool:
    return "=" in word and word.split("=", 1)[0].isupper()
