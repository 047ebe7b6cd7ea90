"""`python -m ... NODES WORDS...`: has every agent run a command once, as srun does; `--sweep` ends what still runs.

The command has this process's environment, but for what a node has of its own, and PET_NODE_RANK. Where it ends badly
on one node, or an agent falls silent, the others are told to end; the exit code is the highest.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from gpu_plan.executor.engines.agents.store import Keys, connected, told

_POLL = 0.2
SILENT = 30.0
"""Seconds without a beat after which a node is lost."""
_LOST = 1


class Launch:
    """One launch on all nodes. Use `run` once."""

    def __init__(self, keys: Keys, nodes: int) -> None:
        self.keys, self.nodes = keys, nodes
        self.number = keys.next("launches")
        self.codes: dict[int, int] = {}
        self._beats = {rank: ("", time.monotonic()) for rank in range(nodes)}
        self._sent = 0

    def run(self, words: Sequence[str], arrived: list[int]) -> int:
        """The highest exit code. `arrived`: signals, as they come."""
        wanted = {"words": list(words), "environment": dict(os.environ), "directory": os.getcwd(), "nodes": self.nodes}
        self.keys.put(f"launch/{self.number}", json.dumps(wanted))
        ended = False
        while len(self.codes) < self.nodes:
            self._look()
            if any(self.codes.values()) and not ended:
                ended = True
                self.send(signal.SIGTERM)
            while arrived:
                ended = True
                self.send(arrived.pop(0))
            time.sleep(_POLL)
        return max(self.codes.values(), default=0)

    def send(self, number: int) -> None:
        """A signal to the command on every node."""
        self.keys.put(f"signal/{self.number}/{self._sent}", str(int(number)))
        self._sent += 1

    def _look(self) -> None:
        for rank in range(self.nodes):
            if rank in self.codes:
                continue
            code = self.keys.get(f"code/{self.number}/{rank}")
            if code is not None:
                self.codes[rank] = int(code)
                continue
            beat, since = self.keys.beats(rank), time.monotonic()
            before, last = self._beats[rank]
            if beat != before:
                self._beats[rank] = (beat, since)
            elif since - last > SILENT:
                print(f"plan: node {rank} has said nothing for {SILENT:.0f} s", file=sys.stderr, flush=True)
                self.codes[rank] = _LOST


def main(words: Sequence[str]) -> int:
    """See above."""
    place = told()
    keys = connected(place["name"], place["host"], place["port"])
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    if words[0] == "--sweep":
        keys.put(f"launch/{keys.next('launches')}", json.dumps({"nodes": 0}))
        return 0
    return Launch(keys, int(words[0])).run(words[1:], arrived)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
