"""Starts the look at every node, reads what they said, and judges it (I/O at the edges)."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.executor.doctor.machine import Check
from gpu_plan.executor.doctor.machine.check import fine, found, problem
from gpu_plan.executor.engines.preflight.node import Said, file_of
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.own_python import own_command
from gpu_plan.planner.plan.codec import MAX_BYTES, decode, load_object

if TYPE_CHECKING:
    from gpu_plan.executor.doctor.finding import Severity

MODULE = "gpu_plan.executor.engines.preflight.node"
_SECONDS = 900.0
"""For a place in the queue, too."""


def look(
    folder: Path, engine: str, nodes: int, start: Sequence[str], environment: Mapping[str, str], *, python: str = ""
) -> tuple[Check, ...]:
    """Runs the look on each node by the words of `start`, and gives every check, those of nodes by their names."""
    words = own_command(MODULE)
    command = (*start, python or words[0], *words[1:], str(folder), engine, str(nodes))
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
        last = _last(done.stderr)
    except subprocess.TimeoutExpired:
        last = f"nothing came back within {_SECONDS:.0f} s"
    except OSError as error:
        last = str(error)
    return judge(_read(folder, nodes), nodes, last)


def _read(folder: Path, nodes: int) -> list[Said]:
    there = []
    for number in range(nodes):
        path = folder / file_of(number)
        try:
            there.append(decode(Said, load_object(read_bytes(path, MAX_BYTES), str(path)), str(path)))
        except (OSError, PlanError):
            continue
    return there


def judge(said: Sequence[Said], nodes: int, last: str = "") -> tuple[Check, ...]:
    """The nodes' own checks, named by their host, and those between nodes. Pure. `last`: what the engine's command
    said last."""
    checks = [_all_there(said, nodes, last), _versions(said), _plans(said), _reduced(said, nodes)]
    for node in said:
        where = f"{node.host} (node {node.node})"
        for check in node.checks:
            told = tuple(replace(finding, place=f"{where}: {finding.place}") for finding in check.findings)
            if told:  # what is well on every node is not said for each
                checks.append(Check(id=check.id, state=check.state, seen=f"{where}: {check.seen}", findings=told))
    return tuple(checks)


def _all_there(said: Sequence[Said], nodes: int, last: str) -> Check:
    if len(said) == nodes:
        return fine("nodes", f"{nodes} of {nodes} answered: {', '.join(node.host for node in said)}")
    missing = sorted(set(range(nodes)) - {node.node for node in said})
    what = f"node {', '.join(map(str, missing))} of {nodes} left no word{f': {last}' if last else ''}"
    why = "the folder is not shared, this package is not installed there, or the engine gave no nodes"
    return found(
        "nodes",
        what,
        problem("nodes", "error", what, why, "see what it said; `setup` lines, `python`", place="the nodes"),
    )


def _versions(said: Sequence[Said]) -> Check:
    names = sorted({name for node in said for name in node.versions})
    apart = {}
    for name in names:
        kinds = {node.versions.get(name, "absent") for node in said}
        if len(kinds) > 1:
            apart[name] = ", ".join(f"{node.versions.get(name, 'absent')} on {node.host}" for node in said)
    if not apart:
        shown = ", ".join(f"{name} {said[0].versions[name]}" for name in names[:3]) if said else "nothing"
        return fine("node-versions", f"the same on every node: {shown}")
    what = "; ".join(f"{name}: {kinds}" for name, kinds in apart.items())
    severity: Severity = "error" if "torch" in apart else "warning"
    why = "ranks of different versions hang, or compute apart"
    return found(
        "node-versions",
        what,
        problem("node-versions", severity, what, why, "install the same everywhere", place="the nodes"),
    )


def _plans(said: Sequence[Said]) -> Check:
    digests = {node.plan for node in said}
    if len(digests) <= 1:
        digest = next(iter(digests), None)
        return fine("node-plan", "no plan to compare" if digest is None else f"the same on every node ({digest[:12]})")
    what = "nodes read different plans"
    why = "the folder is not shared, or a copy on one node is old"
    return found(
        "node-plan",
        what,
        problem("node-plan", "error", what, why, "use storage that every node shares", place="the nodes"),
    )


def _reduced(said: Sequence[Said], nodes: int) -> Check:
    if nodes == 1:
        return fine("all-reduce", "one node")
    problems = [f"{node.host}: {node.reduce_problem}" for node in said if node.reduce_problem]
    if not problems:
        slowest = max((node.reduce_seconds or 0.0 for node in said), default=0.0)
        return fine("all-reduce", f"1 MiB over {len(said)} nodes, joining included, in {slowest:.1f} s")
    why = "ranks of different nodes do not reach each other"
    fix = "name the interface: env.NCCL_SOCKET_IFNAME, env.GLOO_SOCKET_IFNAME; open the ports between the nodes"
    return found("all-reduce", problems[0], problem("all-reduce", "error", problems[0], why, fix, place="the nodes"))


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("plan: ")]
    return (own or lines or [""])[-1].removeprefix("plan: ")[:300]
