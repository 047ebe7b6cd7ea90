"""What was read, as a command line, as a `[tool.plan]` table, as text and as a JSON document: pure."""

import shlex
from collections.abc import Callable

from gpu_plan.planner.from_config.convert import Converted
from gpu_plan.planner.options.given.named import named, shown_words
from gpu_plan.planner.toml_text import toml_comment, toml_string, toml_value


def values(converted: Converted) -> dict[str, object]:
    """The job by named values, as `options.named` takes it."""
    options = {said.option: _flag(said.value) for said in converted.options if not said.setting}
    settings = {said.option: said.value for said in converted.options if said.setting}
    return {"model": converted.model, "gpus": converted.gpus, **options, "set": settings}


def command(converted: Converted) -> str:
    """The whole command, quoted, to be shown; MODEL stands for a model that the file does not name."""
    return shlex.join(["plan", *shown_words(named({**values(converted), "model": converted.model or "MODEL"}))])


def _flag(value: str) -> str | bool:
    return value == "true" if value in ("true", "false") else value


def toml(converted: Converted) -> str:
    """The same as a table for pyproject.toml."""
    lines = ["[tool.plan]", toml_comment(f"from {converted.path}, {converted.title}")]
    if converted.model:
        lines.append(f"model = {toml_string(converted.model)}")
    if converted.gpus:
        lines.append(f"gpus = {toml_string(converted.gpus)}")
    elif converted.processes:
        lines.append(toml_comment(f"gpus: {counted(converted)}"))
    for said in converted.options:
        if not said.setting:
            lines.append(f"{said.option} = {toml_value(said.value)}")
    settings = [said for said in converted.options if said.setting]
    if settings:
        lines += [
            "",
            "[tool.plan.set]",
            *(f"{toml_string(said.option)} = {toml_value(said.value)}" for said in settings),
        ]
    return "\n".join(lines) + "\n"


def document(converted: Converted) -> dict[str, object]:
    """Plain JSON values."""
    return {
        "schema_version": 1,
        "file": converted.path,
        "kind": converted.kind,
        "recognised_by": list(converted.signs),
        "model": converted.model,
        "gpus": converted.gpus,
        "processes": converted.processes,
        "nodes": converted.nodes,
        "options": {said.option: said.value for said in converted.options if not said.setting},
        "settings": {said.option: said.value for said in converted.options if said.setting},
        "sources": {said.option: said.source for said in converted.options},
        "command": command(converted),
        "approximated": list(converted.approximated),
        "passed_over": list(converted.passed_over),
        "not_understood": list(converted.not_understood),
        "notes": list(converted.notes),
    }


def text(converted: Converted, clean: Callable[[str], str]) -> str:
    """For people: what follows from which key, the command, what is planned otherwise, what is passed over.

    `clean` makes a file's own words safe for a terminal.
    """
    by = f" (by {', '.join(converted.signs[:4])})" if converted.signs else ""
    lines = [clean(f"{converted.path}: {converted.title}{by}"), ""]
    rows = [
        (("--set " if said.setting else "--") + said.option, clean(said.value), clean(said.source))
        for said in converted.options
    ]
    wide = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    lines += [f"  {name:<{wide[0]}}  {value:<{wide[1]}}  {source}" for name, value, source in rows]
    lines += ["", command(converted)]
    if converted.gpus is None:
        wanted = f"{counted(converted)}: " if converted.processes else ""
        lines += ["", f"GPUs: {wanted}no file says which; name them with --gpus, such as --gpus H100"]
    for title, listed in (("Planned otherwise", converted.approximated), ("Notes", converted.notes)):
        if listed:
            lines += ["", f"{title}:", *(f"  {clean(line)}" for line in listed)]
    for title, names in without_meaning(converted).items():
        lines += ["", f"{title} ({len(names)} keys): {clean(', '.join(names))}"]
    return "\n".join(lines) + "\n"


def without_meaning(converted: Converted) -> dict[str, tuple[str, ...]]:
    """Keys of which nothing follows, by what is known of them; a title without keys is not there."""
    unknown = frozenset(converted.not_understood)
    found = {
        "Changes neither memory nor time": tuple(key for key in converted.passed_over if key not in unknown),
        "Not understood": converted.not_understood,
    }
    return {title: names for title, names in found.items() if names}


def counted(converted: Converted) -> str:
    """`16 processes on 2 nodes`."""
    count, nodes = converted.processes or 1, converted.nodes or 1
    where = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{count} process{'es' * (count > 1)}{where}"
