"""Ray's nodes, as `ray list nodes` has them (I/O).

Fields are those of Ray's state API, 2.60: state, resources_total with CPU, GPU, memory, object_store_memory (bytes) and
accelerator_type:NAME.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.hardware.engines.nodes import Node, known_name
from gpu_plan.planner.units import GIB, MIB

NAME = "ray"
_TIMEOUT = 120.0
_ADDRESS = re.compile(r"(?P<address>https?://[^/]+?:\d+|[A-Za-z0-9_.-]+:\d+)?:?(?P<name>[^:]*)")
_TYPE = "accelerator_type:"
_MOST = 1000
_SIZE = re.compile(r"([0-9.e+]+)\s*(|B|KiB|MiB|GiB|TiB)")
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "TiB": 2**40}


def split(place: str) -> tuple[str, str]:
    """The address and the devices' name of what follows `ray:`. InputError for what is neither."""
    match = _ADDRESS.fullmatch(place)
    if match is None:
        raise InputError(f"--gpus ray:{place}: write ray, ray:http://HOST:8265, ray:HOST:6379 or ray:ADDRESS:H100")
    return match["address"] or "", match["name"]


def nodes_of(address: str) -> list[Node]:
    """Nodes that are alive. UnreachableError where Ray or its cluster is not there."""
    command = [_ray(), "list", "nodes", "--format", "json", "--detail", "--limit", str(_MOST)]
    try:
        done = subprocess.run(
            [*command, *(["--address", address] if address else [])], capture_output=True, text=True, timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"--gpus ray: ray does not answer: {error}") from None
    if done.returncode != 0:
        where = address or "(RAY_ADDRESS, or one that runs on this machine)"
        raise UnreachableError(f"--gpus ray: no answer from a Ray cluster {where}: {_last(done.stderr)}")
    return parse(done.stdout)


def parse(text: str) -> list[Node]:
    """From `ray list nodes --format json --detail`. InputError for another text."""
    try:
        found = json.loads(text[text.index("[") :])
    except ValueError:
        raise InputError(f"--gpus ray: `ray list nodes` gives no JSON: {text[:80]!r}") from None
    return [_node(entry) for entry in found if isinstance(entry, dict) and entry.get("state") == "ALIVE"]


def _node(entry: Mapping[str, object]) -> Node:
    resources = entry.get("resources_total")
    has = resources if isinstance(resources, Mapping) else {}
    count = int(float(str(has.get("GPU", 0))))
    kinds = [str(key).removeprefix(_TYPE) for key in has if str(key).startswith(_TYPE)]
    ram = sum(_bytes(has.get(key, 0)) for key in ("memory", "object_store_memory"))
    return Node(
        name=str(entry.get("node_id", "")),
        gpu=known_name(kinds[0] if kinds else "") if count else None,
        gpus=count,
        ram_bytes=ram or None,
    )


def _bytes(value: object) -> int:
    """Of a number, or of `17.878 GiB`, as the command writes it; 0 for another text."""
    match = _SIZE.fullmatch(str(value))
    return 0 if match is None else int(float(match[1]) * _UNITS[match[2]])


def inside(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process belongs to a job of Ray's (ray/_private/ray_constants.py: RAY_JOB_CONFIG_JSON_ENV_VAR)."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in environment


def _ray() -> str:
    beside = Path(sys.executable).with_name("ray")
    found = str(beside) if beside.is_file() else shutil.which("ray")
    if found is None:
        raise UnreachableError(
            f"--gpus ray: there is no `ray` beside {sys.executable} or on PATH: pip install 'ray[default]'"
        )
    return found


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["it says nothing"])[-1][:300]
