"""`python nodes.py NODES GUARD WORDS...`: runs a command once on each node that the group's workers hold, as srun does.

Started by the supervisor, in the first of Ray Train's workers. An actor on each node starts the command beside the
worker that has the node's devices, with this process's own environment and PET_NODE_RANK. Where one ends badly the
others are told to end; the exit code is the highest. Where this process goes, Ray ends the actors, and they the
commands.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

_PLACES, _ADDRESS = "GPU_PLAN_RAY_PLACES", "GPU_PLAN_RAY_ADDRESS"
_POLL = 0.2
_NODE_LOST = 1


class Node:
    """An actor: one command on one node."""

    def __init__(self) -> None:
        self._started: subprocess.Popen[bytes] | None = None

    def run(self, words: Sequence[str], environment: Mapping[str, str], directory: str) -> int:
        """The command's exit code."""
        self._started = subprocess.Popen(list(words), env=dict(environment), cwd=directory, stdin=subprocess.DEVNULL)
        return self._started.wait()

    def send(self, number: int) -> None:
        """A signal to the command."""
        if self._started is not None and self._started.poll() is None:
            self._started.send_signal(number)


def main(count: int, guard: str, words: Sequence[str]) -> int:
    """Runs `words` on the first `count` nodes."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    places = json.loads(os.environ[_PLACES])[:count]
    ray.init(address=os.environ[_ADDRESS], log_to_driver=False, configure_logging=False)
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    kind = ray.remote(num_cpus=0, max_concurrency=2, max_restarts=0)(Node)
    actors, waits = [], {}
    for rank, place in enumerate(places):
        actor = kind.options(scheduling_strategy=NodeAffinitySchedulingStrategy(place["node"], soft=False)).remote()
        actors.append(actor)
        command = [sys.executable, "-S", guard, *words]
        waits[actor.run.remote(command, _environment(rank, place), os.getcwd())] = rank
    codes: dict[int, int] = {}
    told = False
    while waits:
        ended, _ = ray.wait(list(waits), timeout=_POLL)
        for reference in ended:
            rank = waits.pop(reference)
            try:
                codes[rank] = ray.get(reference)
            except RayError as error:
                print(f"plan: node {rank} ({places[rank]['address']}): {_line(error)}", file=sys.stderr, flush=True)
                codes[rank] = _NODE_LOST
        bad = any(codes.values()) and not told
        for sent in [int(signal.SIGTERM)] if bad and not arrived else arrived:
            told = True
            _tell([actors[rank] for rank in waits.values()], sent)
        arrived.clear()
    return max(codes.values(), default=0)


def _tell(actors: Sequence[Any], number: int) -> None:
    for actor in actors:
        actor.send.remote(number)


def _environment(rank: int, place: Mapping[str, str | None]) -> dict[str, str]:
    found = dict(os.environ)
    found["PET_NODE_RANK"] = str(rank)
    devices = place.get("devices")
    if devices is None:
        found.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        found["CUDA_VISIBLE_DEVICES"] = devices
    return found


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
