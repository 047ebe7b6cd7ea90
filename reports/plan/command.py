"""A plan's shell command: what has to be done before it, and lines of it that can still be copied."""

import re
from collections.abc import Mapping

from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.planner.strategy.known import known_traits

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*'|["'])+""")


def before_launch(document: PlanDocument, shown: Candidate) -> list[str]:
    """What a plan's command needs of its script, a sentence each; nothing where it can be launched as it is."""
    said = (_lacked(document, shown), _left_to_the_script(document, shown))
    return [words for words in said if words is not None]


def _left_to_the_script(document: PlanDocument, shown: Candidate) -> str | None:
    """What the plan chose and no word of its command says, of a script that was not read."""
    choice, command = shown.strategy, shown.command or ""
    traits = known_traits(choice.name)
    inside = document.workload.get("task") == "infer" or (traits is not None and traits.own_model)
    if inside or document.workload.get("script") or "--per_device_train_batch_size" in command:
        return None
    if {"--execute", "-m"} & set(command.split()):
        return None  # which sets what it can, and says what it cannot; or a trainer that is told all of it
    steps, every = choice.gradient_accumulation_steps, choice.checkpoint_every
    pieces = [f"micro batch {choice.loop_batch_size}"]
    if steps > 1 and choice.pipeline_parallel == 1 and "--gradient_accumulation_steps" not in command:
        pieces.append(f"{steps} accumulation steps")
    if choice.checkpointing == "selective":
        pieces.append("selective checkpointing")
    if choice.checkpointing == "full" and "activation_checkpointing" not in command:
        pieces.append(f"model.gradient_checkpointing_enable({f'every_n_layers={every}' if every > 1 else ''})")
    return f"what the script sets itself: {', '.join(pieces)}"


def _lacked(document: PlanDocument, shown: Candidate) -> str | None:
    """What a captured script lacks; None where it can be launched as it is.

    A plain loop that wraps its model in nothing runs whole on each rank it is started on.
    """
    script = document.workload.get("script")
    ranks = shown.strategy.world_size
    if document.workload.get("stack") != "plain" or not isinstance(script, Mapping) or ranks == 1:
        return None
    if script.get("wrapper") is not None:
        return None
    traits = known_traits(shown.strategy.name)
    wrapped_by = sorted(traits.wrapped_by) if traits is not None else []
    change = "make its loop Accelerate's (accelerator.prepare)"
    if wrapped_by and not (traits is not None and traits.uses_deepspeed):
        change = f"wrap its model in {wrapped_by[-1]}, or {change}"
    return (
        f"first: the script wraps its model in nothing, so {ranks} independent jobs would run; {change}, or plan for"
        " one GPU"
    )


def command_lines(command: str, width: int) -> list[str]:
    """`command` in lines of at most `width` where its words allow it, all but the last ending in ` \\`.

    Breaks before options, so that an option stays with its value; never inside a word.
    """
    if len(command) <= width:
        return [command]
    lines: list[str] = []
    current = ""
    for chunk in _chunks(command):
        longer = f"{current} {chunk}" if current else chunk
        if current and len(longer) > width - 2:
            lines.append(current + " \\")
            current = "  " + chunk
        else:
            current = longer
    return [*lines, current]


def _chunks(command: str) -> list[str]:
    """Words, an option joined with the value after it."""
    chunks: list[str] = []
    for word in _WORD.findall(command):
        takes_value = bool(chunks) and re.fullmatch(r"--?[A-Za-z][\w-]*", chunks[-1])
        if takes_value and not word.startswith("-"):
            chunks[-1] += " " + word
        else:
            chunks.append(word)
    return chunks
