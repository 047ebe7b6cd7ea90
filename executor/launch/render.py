"""Generated files as text, each with the exact command that made it. Pure."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path


def yaml_text(config: Mapping[str, object], made_by: str) -> str:
    """YAML with a header comment."""
    import yaml

    body = yaml.safe_dump(dict(config), sort_keys=False, default_flow_style=False)
    return f"{header(made_by)}{body}"


def json_text(config: Mapping[str, object]) -> str:
    """JSON; it has no comments, so the command that made it stands in the files beside it."""
    return json.dumps(config, indent=2) + "\n"


def shell_text(
    environment: Mapping[str, str], command: Sequence[str], made_by: str, *, logs: Path | None = None
) -> str:
    """A shell script that launches by hand what was launched.

    `logs`: of a command that is started on several nodes, the folder in which each has output files of its own.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    start = f'exec {shlex.join(command)} "$@"'
    if logs is not None:
        lines += [f'node={shlex.quote(str(logs))}/node-"${{PET_NODE_RANK:?}}"', 'export PET_LOG_DIR="$node"']
        start += ' >> "$node.stdout.log" 2>> "$node.stderr.log"'
    return "\n".join(["#!/bin/sh", header(made_by) + "set -e", *lines, start]) + "\n"


def header(made_by: str) -> str:
    """A comment line; a command of several lines becomes one."""
    return f"# Made by: {' '.join(made_by.split())}\n" if made_by else ""
