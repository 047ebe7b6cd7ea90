"""Keys as the replaying process evaluates them, in its own processor time: no screen, no other process.

Every state is evaluated anew; what a strategy made of a trace is kept for the next micro batch, as in the explorer.
What the planner refuses is stepped past with the same key; where that leads nowhere the key is taken back. What must be
traced is traced by the explorer's own searching process, which is ended where it takes too long.
"""

import os
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.tui.engine.evaluate import Replays
from gpu_plan.tui.engine.kept.providers import KeptTraces, Providers, UntracedError
from gpu_plan.tui.engine.messages import Ask, Reply, TracePayload, read, write
from gpu_plan.tui.pauses import without_pauses
from gpu_plan.tui.state import State

OPTIONS = ("strategy", "offload", "checkpointing", "micro-batch", "micro-batch", "grad-accum", "optimizer", "gpus")
SHOWN = {"offload": "none", "checkpointing": "none", "optimizer": "adamw"}
PATIENCE = 40.0
"""Seconds that a trace may take; its state is left behind it."""
_PAST = 20
"""Refused states that a key is pressed past: more than an option has values."""


@dataclass(slots=True)
class Times:
    """Processor milliseconds of every key, from the question on."""

    first: list[float] = field(default_factory=list)
    """Of whatever is drawn first: model states alone where sums are waited for."""
    sums: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)
    """Of what needed no trace."""
    behind_trace: list[float] = field(default_factory=list)
    """Until exact, once its trace had come."""
    counts: Counter[str] = field(default_factory=Counter)


class Tracing:
    """The explorer's searching process, asked for traces one by one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def trace(self, state: State) -> TracePayload | None:
        """What a picture lacks; None where it is refused, or takes longer than `PATIENCE`."""
        if self._process is None:
            command = [*own_command("gpu_plan.tui.engine.child"), "search"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=own_environment(os.environ),
            )
        process, self._number = self._process, self._number + 1
        assert process.stdin is not None
        assert process.stdout is not None
        ending = threading.Timer(PATIENCE, process.kill)
        ending.start()
        try:
            write(process.stdin, Ask(number=self._number, kind="trace", request=state.focus_request))
            while (reply := read(process.stdout)) is not None:
                assert isinstance(reply, Reply)
                if reply.kind != "progress":
                    return reply.parcel if isinstance(reply.parcel, TracePayload) else None
        finally:
            ending.cancel()
        self.close()
        return None

    def close(self) -> None:
        """Ends the process; the next trace starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def evaluated(model: str, gpus: str, changes: int) -> Times:
    """As many keys, each option as likely as in a hand that looks for a larger batch."""
    tracing, replays, times = Tracing(), Replays(Providers(KeptTraces)), Times()
    dice, state = random.Random(6), State(model=model, gpus=gpus).trying("strategy", "fsdp").trying("micro-batch", "1")
    without_pauses()
    try:
        for _ in range(changes):
            name, forward = dice.choice(OPTIONS), dice.random() < 0.6
            before = state
            for _ in range(_PAST):
                state = _moved(state, name, forward, gpus)
                if _look(replays, tracing, state, times):
                    break
            else:
                state = before
                times.counts["taken back"] += 1
    finally:
        tracing.close()
    return times


def _moved(state: State, name: str, forward: bool, gpus: str) -> State:
    state = state.more_gpus(forward) if name == "gpus" else state.stepped(name, forward, shown=SHOWN.get(name))
    if int(state.value("micro-batch") or 1) > 64 or int(state.gpus.split("x")[0]) > 64:
        return state.trying("micro-batch", "1").with_gpus(gpus)
    return state


def _look(replays: Replays[KeptTraces], tracing: Tracing, state: State, times: Times) -> bool:
    """One state to its exact picture; False where it is refused."""
    marks, untraced = _marks(replays, state)
    if marks is None:
        times.counts["refused"] += 1
        return False
    if not untraced:
        times.counts["at hand"] += 1
        times.first.append(marks[0][0])
        times.sums.append(next(at for at, states_only, _ in marks if not states_only))
        times.exact.append(next(at for at, _, exact in marks if exact))
        return True
    times.counts["traced"] += 1
    if marks:
        times.first.append(marks[0][0])
    else:
        times.counts["traced, nothing before"] += 1
    parcel = tracing.trace(state)
    if parcel is None:
        times.counts["no trace came"] += 1
        return True
    replays.take(parcel)
    marks, untraced = _marks(replays, state)
    if marks is None or untraced:
        times.counts["no trace came"] += 1
    else:
        times.behind_trace.append(next(at for at, _, exact in marks if exact))
    return True


def _marks(replays: Replays[KeptTraces], state: State) -> tuple[list[tuple[float, bool, bool]] | None, bool]:
    """Milliseconds of each picture, whether it is of states alone, whether exact; None where the state is refused. And
    whether a trace is missing."""
    began, marks = time.process_time(), []
    try:
        for picture in replays.pictures(state.focus_request):
            marks.append((1000 * (time.process_time() - began), picture.states_only, picture.exact))
    except PlanError:
        return None, False
    except UntracedError:
        return marks, True
    return marks, False
