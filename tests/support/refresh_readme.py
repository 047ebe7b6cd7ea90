"""Puts into README.md what the program prints and refuses today: `make readme`.

The excerpt stands between `<!-- plan WORDS -->` and `<!-- end -->`, the list of what is refused by name between
`<!-- not built -->` and `<!-- end -->`, the keys of `--set` between `<!-- settings -->` and `<!-- end -->`.
"""

import contextlib
import io
import os
import re
from pathlib import Path

from gpu_plan import cli
from gpu_plan.cli import main
from gpu_plan.executor.launch.engines.registry import LATER_ENGINES
from gpu_plan.planner.options import parser as options
from gpu_plan.planner.options import settings
from gpu_plan.planner.options import training as workload_options
from gpu_plan.planner.strategy.known import NOT_BUILT

README = Path(__file__).resolve().parents[2] / "README.md"
_LIST = re.compile(r"(<!-- not built -->\n).*?(<!-- end -->)", re.DOTALL)
_KEYS = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)
_EXCERPT = re.compile(r"(<!-- plan (?P<words>[^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """README text with every excerpt made again at 80 columns."""
    return _EXCERPT.sub(lambda found: f"{found[1]}```text\n{_output(found['words'].split())}```\n{found[3]}", text)


def relisted(text: str) -> str:
    """README text with the list of what is not built and the table of settings made again."""
    text = _KEYS.sub(lambda found: f"{found[1]}{settings.settings_table()}\n{found[2]}", text)
    return _LIST.sub(lambda found: f"{found[1]}{not_built()}\n{found[2]}", text)


def not_built() -> str:
    """Everything of the interface that the code refuses by name, as a Markdown list."""
    values = ["--kv-dtype int8", "--kv-dtype int4", "--kv-dtype int2", *(f"--strategy {name}" for name in NOT_BUILT)]
    values += [f"{option} {value}" for option, later in workload_options._LATER.items() for value in later]
    kinds = {
        "verbs": [f"plan {verb}" for verb in cli.LATER_VERBS],
        "options": [option.name for option in options._LATER],
        "values": values,
        "settings": [f"--set {key}" for key in settings.LATER],
        "engines of `plan export`": [f"--to {name}" for name in LATER_ENGINES],
    }
    return "\n".join(_item(kind, names) for kind, names in kinds.items() if names)


def _item(kind: str, names: list[str]) -> str:
    lines = [f"- {kind}:"]
    for name in names:
        word = f" `{name}`{'' if name is names[-1] else ','}"
        if len(lines[-1]) + len(word) > 118:
            lines.append(" ")
        lines[-1] += word
    return "\n".join(lines)


def _output(words: list[str]) -> str:
    os.environ["COLUMNS"] = "80"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(words)
    return out.getvalue()


if __name__ == "__main__":
    README.write_text(refreshed(relisted(README.read_text(encoding="utf-8"))), encoding="utf-8")
