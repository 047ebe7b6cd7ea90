"""What was read, as a command line, as a `[tool.plan]` table, as text and as a JSON document: pure."""

import json
import shlex

from gpu_plan.planner.from_config.convert import Converted


def words(converted: Converted) -> list[str]:
    """Words of the options, MODEL and --gpus apart."""
    found: list[str] = []
    for said in converted.options:
        if said.setting:
            found += ["--set", f"{said.option}={said.value}"]
        elif said.option == "fused-loss":
            found.append("--fused-loss" if said.value == "true" else "--no-fused-loss")
        else:
            found += [f"--{said.option}", said.value]
    return found


def command(converted: Converted) -> str:
    """The whole command, quoted; MODEL stands for a model that the file does not name."""
    start = ["plan", shlex.quote(converted.model) if converted.model else "MODEL"]
    gpus = ["--gpus", shlex.quote(converted.gpus)] if converted.gpus else []
    return " ".join([*start, *gpus, *(shlex.quote(word) for word in words(converted))])


def toml(converted: Converted) -> str:
    """The same as a table for pyproject.toml."""
    lines = ["[tool.plan]", f"# from {converted.path}, {converted.title}"]
    if converted.model:
        lines.append(f"model = {_text(converted.model)}")
    if converted.gpus:
        lines.append(f"gpus = {_text(converted.gpus)}")
    elif converted.processes:
        lines.append(f"# gpus: {counted(converted)}")
    for said in converted.options:
        if not said.setting:
            lines.append(f"{said.option} = {_value(said.value)}")
    settings = [said for said in converted.options if said.setting]
    if settings:
        lines += ["", "[tool.plan.set]", *(f"{_text(said.option)} = {_value(said.value)}" for said in settings)]
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
        "notes": list(converted.notes),
    }


def text(converted: Converted) -> str:
    """For people: what follows from which key, the command, what is planned otherwise, what is passed over."""
    by = f" (by {', '.join(converted.signs[:4])})" if converted.signs else ""
    lines = [f"{converted.path}: {converted.title}{by}", ""]
    rows = [(("--set " if said.setting else "--") + said.option, said.value, said.source) for said in converted.options]
    wide = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    lines += [f"  {name:<{wide[0]}}  {value:<{wide[1]}}  {source}" for name, value, source in rows]
    lines += ["", command(converted)]
    if converted.gpus is None:
        wanted = f"{counted(converted)}: " if converted.processes else ""
        lines += ["", f"GPUs: {wanted}no file says which; name them with --gpus, such as --gpus H100"]
    for title, listed in (("Planned otherwise", converted.approximated), ("Notes", converted.notes)):
        if listed:
            lines += ["", f"{title}:", *(f"  {line}" for line in listed)]
    if converted.passed_over:
        lines += ["", f"No meaning here ({len(converted.passed_over)} keys): {', '.join(converted.passed_over)}"]
    return "\n".join(lines) + "\n"


def counted(converted: Converted) -> str:
    """`16 processes on 2 nodes`."""
    count, nodes = converted.processes or 1, converted.nodes or 1
    where = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{count} process{'es' * (count > 1)}{where}"


def _text(value: str) -> str:
    return json.dumps(value)


def _value(value: str) -> str:
    if value in ("true", "false") or value.isdigit():
        return value
    return _text(value)
