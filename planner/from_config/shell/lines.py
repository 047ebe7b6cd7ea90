"""A command line in a shell script as the table that its options are: text alone, nothing of it is run.

ms-swift 4.5 swift/cli/main.py (`swift rlhf`, `swift sft`; NPROC_PER_NODE), swift/arguments/rlhf_args.py (rlhf_type
is dpo unless said); LLaMA-Factory 0.9.5 src/llamafactory/cli.py (`llamafactory-cli train`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.shell.words import command_words
from gpu_plan.planner.visible import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command."""

    content: Mapping[str, object]
    kind: str
    """Whose options they are."""
    processes: int | None
    """That it starts; None where nothing says."""


_PROGRAMS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "swift rlhf": ("ms-swift", {"rlhf_type": "dpo"}),
    "swift sft": ("ms-swift", {}),
    "swift pt": ("ms-swift", {}),
    "llamafactory-cli train": ("llamafactory", {}),
}
"""Tools by what starts them, with what they take where the line says nothing."""
_OTHERS = "megatron "
"""Before a program's name: another one."""
_PROCESSES = re.compile(r"\b(?:NPROC_PER_NODE|FORCE_TORCHRUN_NPROC)=[\"']?(\$?\{?\w+)")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def line_of(text: str, where: str) -> Line | None:
    """The last command of a known tool; None where there is none, or where it names a file instead.

    InputError for a value that the script does not set.
    """
    for program, (kind, usual) in _PROGRAMS.items():
        words = command_words(text.replace(_OTHERS, "megatron-"), program)
        if words is not None and any(word.startswith("--") for word in words):
            content = {**usual, **_table(words, where)}
            return Line(content=content, kind=kind, processes=_processes(text))
    return None


def _table(words: Sequence[str], where: str) -> dict[str, object]:
    found: dict[str, list[str]] = {}
    key = None
    for word in words:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            key = name.replace("-", "_")
            found[key] = [value] if given else []
        elif key is not None:
            found[key].append(word)
    return {key: _value(key, values, where) for key, values in found.items()}


def _value(key: str, values: Sequence[str], where: str) -> object:
    if not values:
        return True
    for one in values:
        if "$" in one:
            raise InputError(f"{where}: --{key} is {visible(one[:60])}, which the script does not set: write its value")
    return scalar(values[0]) if len(values) == 1 else [scalar(one) for one in values]


def scalar(word: str) -> object:
    """A word as the value that it writes."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            return kind(word) if len(word) < 40 else word
        except ValueError:
            continue
    return word


def _processes(text: str) -> int | None:
    found = _PROCESSES.findall(text)
    if not found:
        return None
    name = found[-1].strip("${")
    if name.isdigit():
        return int(name)
    value = re.search(rf"^\s*(?:export\s+)?{re.escape(name)}=[\"']?(\d+)", text, re.M)
    return int(value[1]) if value else None
