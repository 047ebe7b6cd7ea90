"""On each node: `python -m gpu_plan.executor.engines.agents.agent FOLDER HOST PORT NODES RANK` (I/O).

FOLDER is the run's; where it is `-` the first node tells it. The agents meet at HOST:PORT; PORT 0, of one node: any
that is free. Node 0 starts the supervisor, and every agent runs the launches that it sends. Ends with the run's own
code; 125 where the nodes do not meet, 73 (EX_CANTCREAT) where they do not share the run folder.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_plan.executor.engines.agents.led import guarded
from gpu_plan.executor.engines.agents.store import PLACE, Keys, connected, handler, said_in_one_line
from gpu_plan.executor.engines.jobs import ended_with
from gpu_plan.executor.names import RUN_FILE
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.follow.hosts import Meeting, free_port
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.own_python import own_command

AGAIN, NOT_SHARED, FAILED = 75, 73, 125
LEAD = "gpu_plan.executor.engines.lead"
_POLL, _BEAT, _JOIN, _FIRST_WORD = 0.2, 1.0, 900.0, 5.0
_NOT_SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_OF_THE_NODE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HOSTNAME", "HOME", "TMPDIR")
"""Variables that a launch leaves as the node has them."""


class Agent:
    """One node's agent."""

    def __init__(self, folder: Path | None, host: str, port: int, nodes: int, rank: int) -> None:
        self.folder, self.host, self.port, self.nodes, self.rank = folder, host, port or free_port(), nodes, rank
        self.arrived: list[str] = []
        self.met = False
        """Whether the nodes of this round have come: until then a signal ends this process."""
        self._round = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._lead: subprocess.Popen[bytes] | None = None
        self._launch = 0
        self._running = -1
        self._signal = 0
        self._next_beat = 0.0

    def run(self) -> int:
        """The run's exit code, through as many rounds as it takes."""
        name = hashlib.sha256(f"{self.host}:{self.port}:{self.nodes}".encode()).hexdigest()[:16]
        meeting = handler(self.host, self.port, self.nodes, self.rank, name, _JOIN)
        try:
            while True:
                with said_in_one_line(self.host, self.port), self._waiting():
                    self.met = False
                    # Else a node that comes back waits for a port that the others agreed on before it was there
                    # (dynamic_rendezvous.py: next_rendezvous builds the shared store's place once).
                    os.environ[_NOT_SHARED_STORE] = "1"
                    try:
                        info = meeting.next_rendezvous()
                    finally:
                        del os.environ[_NOT_SHARED_STORE]
                where = self._agreed(info.store, name)
                code = self._in_round(connected(**where), where, meeting)
                if code is not None:
                    return code
                self._round += 1
                self._launch, self._running = 0, -1
        finally:
            self._end(self._child)
            self._end(self._lead)
            with contextlib.suppress(Exception):
                meeting.shutdown()

    def _agreed(self, store: Any, name: str) -> dict[str, Any]:
        """Where this round's keys are: in the store of the first node, which is there as long as the run is. A node
        that has come back has counted fewer rounds."""
        if self.rank == 0:
            place = {"name": f"{name}/{self._round}", "host": self.host, "port": self.port}
            store.set("place", json.dumps(place))
        found: dict[str, Any] = json.loads(store.get("place"))
        return found

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Says whom this node waits for, while it does."""
        met = threading.Event()
        hosts = (self.host, *(f"node {number}" for number in range(1, self.nodes)))
        meeting = Meeting(hosts=hosts, port=self.port, here=self.rank)

        def say() -> None:
            wait = _FIRST_WORD
            while not met.wait(wait):
                _say(meeting.words(meeting.joined([os.getpid()])))
                wait = 60.0

        threading.Thread(target=say, daemon=True).start()
        try:
            yield
        finally:
            met.set()

    def _in_round(self, keys: Keys, where: Mapping[str, Any], meeting: Any) -> int | None:
        """The run's exit code; None where another round begins."""
        shared = self._shared(keys)
        if not shared:
            return NOT_SHARED
        self.met = True
        if self.rank == 0:
            self._start_lead(where)
        else:
            _say(f"node {self.rank} of {self.nodes} serves the run {json.loads(keys.get('folder') or '[0]')[0]}")
        try:
            while True:
                self._beat(keys)
                self._serve(keys)
                told = keys.get("round") if self.rank else self._lead_ended(keys, meeting)
                if told is not None:
                    self._end(self._child)
                    _last_word(keys, self.rank)
                    return None if told == "again" else int(told.split()[1])
                time.sleep(_POLL)
        except RuntimeError as error:  # the store went with the first node
            self._end(self._child)
            _say(f"node 0 ({self.host}) is gone: {' '.join(str(error).split())[:120]}")
            return FAILED

    def _shared(self, keys: Keys) -> bool:
        """Whether every node sees the run folder, each from the same working directory."""
        here = os.getcwd()
        if self.rank == 0:
            keys.put("folder", json.dumps([str(self.folder), here]))
        while (told := keys.get("folder")) is None:
            time.sleep(_POLL)
        folder, directory = json.loads(told)
        sees = os.path.isfile(os.path.join(folder, RUN_FILE)) and directory == here
        keys.put(f"sees/{self.rank}", str(int(sees)))
        found: list[str] = []
        while len(found) < self.nodes:
            found = [value for rank in range(self.nodes) if (value := keys.get(f"sees/{rank}")) is not None]
            time.sleep(_POLL)
        if "0" in found and self.rank == 0:
            time.sleep(1.0)  # the others read it in this process's store
        return "0" not in found

    def _start_lead(self, where: Mapping[str, Any]) -> None:
        variables = {**os.environ, PLACE: json.dumps({**where, "starts": self._round, "head": self.host})}
        command = [*guarded(), *own_command(LEAD), str(self.folder)]
        self._lead = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL)

    def _lead_ended(self, keys: Keys, meeting: Any) -> str | None:
        """What the round came to, of which all are told."""
        assert self._lead is not None
        for name in [*self.arrived, *filter(None, [keys.get("interrupted")])][:1]:
            self.arrived.clear()
            if keys.get("passed on") is None:
                keys.put("passed on", name)
                self._lead.send_signal(signal.Signals[name])
        if meeting.num_nodes_waiting() > 0 and self._lead.poll() is None and keys.get("passed on") is None:
            _say("a node has come back: another round begins")
            keys.put("passed on", "SIGTERM")
            self._lead.send_signal(signal.SIGTERM)
            self._await_lead(keys)
            keys.put("round", "again")
            return "again"
        code = self._lead.poll()
        if code is None:
            return None
        told = "again" if code == AGAIN else f"over {code if code >= 0 else 128 - code}"
        keys.put("round", told)
        return told

    def _await_lead(self, keys: Keys) -> None:
        until = time.monotonic() + 60.0
        while self._lead is not None and self._lead.poll() is None and time.monotonic() < until:
            self._beat(keys)
            self._serve(keys)
            time.sleep(_POLL)
        self._end(self._lead)

    def _beat(self, keys: Keys) -> None:
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _BEAT
            keys.put(f"beat/{self.rank}", repr(time.monotonic()))
            if self.rank and self.arrived:
                keys.put("interrupted", self.arrived[0])

    def _serve(self, keys: Keys) -> None:
        """Starts what was sent last, passes signals on, says how it ended."""
        wanted = keys.get(f"launch/{self._launch}")
        if wanted is not None:
            self._end(self._child)
            self._running, self._signal = self._launch, 0
            self._launch += 1
            self._child = self._started(json.loads(wanted))
        if self._child is None:
            return
        while (number := keys.get(f"signal/{self._running}/{self._signal}")) is not None:
            self._signal += 1
            self._child.send_signal(int(number))
        code = self._child.poll()
        if code is not None:
            keys.put(f"code/{self._running}/{self.rank}", str(code if code >= 0 else 128 - code))
            self._child = None

    def _started(self, wanted: Mapping[str, Any]) -> "subprocess.Popen[bytes] | None":
        if self.rank >= wanted["nodes"]:
            return None
        own = {name: os.environ[name] for name in _OF_THE_NODE if name in os.environ}
        given = {name: value for name, value in wanted["environment"].items() if name not in _OF_THE_NODE}
        variables = {**given, **own, "PET_NODE_RANK": str(self.rank)}
        command = [*guarded(), *wanted["words"]]
        return subprocess.Popen(command, env=variables, cwd=wanted["directory"], stdin=subprocess.DEVNULL)

    def _end(self, child: "subprocess.Popen[bytes] | None") -> None:
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _last_word(keys: Keys, rank: int) -> None:
    """The first node's store goes with it: it waits until the others have read how the round ended."""
    with contextlib.suppress(RuntimeError):
        keys.put(f"left/{rank}", "1")
        if rank == 0:
            time.sleep(1.0)


def _ended(folder: Path) -> int | None:
    """Exit code of a run that is over, where an engine starts a pod or a task again whose code was not 0."""
    try:
        return ended_with(RunFolder(folder).read_run())
    except PlanError:
        return None  # it is not there: the agents will say so


def _say(text: str) -> None:
    print(f"plan: {text}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """See above."""
    folder, host, port, nodes, rank = words
    over = None if folder == "-" else _ended(Path(folder))
    if over is not None:
        _say(f"the run is over: it ended with {over}")
        return over
    agent = Agent(None if folder == "-" else Path(folder), host, int(port), int(nodes), int(rank))

    def note(number: int, frame: FrameType | None) -> None:
        agent.arrived.append(signal.Signals(number).name)
        if not agent.met:
            sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    return agent.run()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PlanError as problem:
        print(f"plan: error: {problem}", file=sys.stderr)
        sys.exit(FAILED)
