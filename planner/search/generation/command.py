"""The command line that runs prompts under the plan of a generation. Pure."""

import shlex

_REPORT_FLAGS = frozenset({"--json", "--force", "--ascii", "--explain", "--no-cache", "--dry-run"})
_REPORT_VALUES = frozenset({"--format", "-o", "--output", "--save", "--snapshot", "--plot", "--top", "--sweep"})
_PROMPTS = " --execute @generate -- --prompts prompts.txt --output results.jsonl"
"""What runs the best plan."""


def prompts_command(command: str) -> str:
    """The command line that runs the best plan of `command`: its job, without what it says of the report."""
    words = shlex.split(command.partition(" --execute ")[0])
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in _REPORT_FLAGS or word.partition("=")[0] in _REPORT_VALUES:
            skip = not skip and word in _REPORT_VALUES
            continue
        kept.append(word)
    return shlex.join(kept) + _PROMPTS
