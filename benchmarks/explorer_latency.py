"""How soon the explorer's picture follows a key, and its first paint after the start; writes results/explorer.json.

The application runs without a terminal, with its real planner processes. Each change is one key of a fixed
pseudo-random sequence: strategy, offload, checkpointing, micro batch, accumulation, optimizer, number and kind of
GPUs. A change counts from the key's event until the screen has been drawn with the first picture of the new state (the
tensors' sums), and until it has been drawn with the exact one (the allocator simulated). Changes that need a new
trace, states that the planner refuses, and states seen before (their picture is kept) are counted apart. The next key
comes 50 ms after the exact picture; the search of the table runs meanwhile. The load of the machine is noted beside
the figures, and so is the replaying process's own processor time, which does not depend on it.

    python -m benchmarks.explorer_latency                     # everything; the first run makes the traces
    python -m benchmarks.explorer_latency --processor-time    # what does not depend on the machine's load
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
from textual import events

from planner.errors import PlanError
from planner.trace.provider import TraceProvider
from tui.app import ExplorerApp
from tui.engine.evaluate import Replays
from tui.engine.providers import KeptTraces, Providers
from tui.state import State

RESULT = Path(__file__).parent / "results" / "explorer.json"
CHANGES = 200
OPTIONS = ("strategy", "offload", "checkpointing", "micro-batch", "micro-batch", "grad-accum", "optimizer", "gpus")
SHOWN = {"offload": "none", "checkpointing": "none", "optimizer": "adamw"}
KEYS = ("s", "S", "o", "c", "C", "m", "M", "i", "I", "z", "Z", "n", "N", "g", "G")
MODELS = (("meta-llama/Llama-3.1-8B", "8xH100"), ("meta-llama/Llama-3.1-405B", "16x8xH100"))
PATIENCE = 300.0


class Clock:
    """Times at which pictures of the present state were on the screen."""

    def __init__(self, app: ExplorerApp) -> None:
        self.app = app
        self.first: float | None = None
        self.exact: float | None = None
        self.traced = False
        changed = app.session._changed

        def watched() -> None:
            changed()
            session = app.session
            self.traced |= session.busy is not None and session.busy.words.startswith("tracing")
            if session.picture is None or session.picture_of != session.state.focus_command:
                return
            if self.first is None:
                app.call_after_refresh(self._mark, "first")
            if session.picture.exact and self.exact is None:
                app.call_after_refresh(self._mark, "exact")

        app.session._changed = watched

    def _mark(self, name: str) -> None:
        if getattr(self, name) is None:
            setattr(self, name, time.perf_counter())

    def reset(self) -> None:
        self.first = self.exact = None
        self.traced = False


async def idle(app: ExplorerApp) -> None:
    """Until everything that was asked for has come."""
    session, end = app.session, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if session.busy is None and not session.searching and (session.current or session.problem):
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"nothing came of {session.state.focus_command}")


async def measure(model: str, gpus: str) -> dict[str, object]:
    """200 changes of one model."""
    app = ExplorerApp(State(model=model, gpus=gpus), environment={})
    kinds: dict[str, list[tuple[float, float]]] = {"replayed": [], "kept": [], "traced": []}
    refused = 0
    dice = random.Random(6)
    async with app.run_test(size=(120, 40)) as pilot:
        clock = Clock(app)
        began = time.perf_counter()
        await asyncio.sleep(0.2)
        await idle(app)
        opened = time.perf_counter() - began
        worker = psutil.Process(app._processes[0].pid)
        before = sum(worker.cpu_times()[:2])
        while sum(map(len, kinds.values())) + refused < CHANGES:
            key = dice.choice(KEYS)
            state = app.session.state
            clock.reset()
            start = time.perf_counter()
            app.post_message(events.Key(key, key))
            while app.session.state == state and time.perf_counter() - start < 0.5:
                await asyncio.sleep(0.001)
            if app.session.state == state:
                continue  # The same again, as one GPU halved.
            known = app.session.state.focus_command in app.session._kept
            while clock.exact is None and not app.session.problem and time.perf_counter() - start < PATIENCE:
                await asyncio.sleep(0.001)
            if clock.exact is None:
                refused += 1
                await pilot.press("backspace")
                await asyncio.sleep(0.1)
                continue
            kind = "traced" if clock.traced else "kept" if known else "replayed"
            kinds[kind].append((1000 * ((clock.first or clock.exact) - start), 1000 * (clock.exact - start)))
            await asyncio.sleep(0.05)
        spent = sum(worker.cpu_times()[:2]) - before
    told = {name: summary(times) for name, times in kinds.items() if times}
    evaluated = len(kinds["replayed"]) + len(kinds["traced"]) + refused
    return {
        "model": model,
        "gpus": gpus,
        "seconds_until_table": round(opened, 2),
        "changes": told,
        "refused": refused,
        "replay_cpu_ms_per_evaluation": round(1000 * spent / max(1, evaluated), 1),
    }


def summary(times: list[tuple[float, float]]) -> dict[str, object]:
    """Milliseconds of the first and of the exact picture."""
    return {"changes": len(times)} | {
        name: {"median": round(statistics.median(column), 1), "p95": round(_p95(column), 1)}
        for name, column in zip(("first_picture_ms", "exact_picture_ms"), zip(*times, strict=True), strict=True)
    }


def _p95(values: "tuple[float, ...]") -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def evaluated(model: str, gpus: str) -> dict[str, object]:
    """Processor milliseconds of the replaying process alone, over as many changes: no screen, no other process.

    Every state is evaluated anew; what a strategy made of a trace is kept for the next micro batch, as in the explorer.
    """
    tracing, replays = Replays(Providers(TraceProvider)), Replays(Providers(KeptTraces))
    dice, state = random.Random(6), State(model=model, gpus=gpus).trying("strategy", "fsdp").trying("micro-batch", "1")
    times: list[tuple[float, float]] = []
    while len(times) < CHANGES:
        name, forward = dice.choice(OPTIONS), dice.random() < 0.6
        state = state.more_gpus(forward) if name == "gpus" else state.stepped(name, forward, shown=SHOWN.get(name))
        if int(state.value("micro-batch") or 1) > 64 or int(state.gpus.split("x")[0]) > 64:
            state = state.trying("micro-batch", "1").with_gpus(gpus)
        try:
            replays.take(tracing.parcel(state.focus_request, lambda _: None, lambda: None))
        except PlanError:
            continue  # What the planner refuses has no picture.
        began, marks = time.process_time(), []
        for _ in replays.pictures(state.focus_request):
            marks.append(1000 * (time.process_time() - began))
        times.append((marks[0], marks[-1]))
    return {"model": model, "gpus": gpus, **summary(times)}


_IMPORT = "import textual.app, textual.widgets"
_PAINT = """
import sys
from tui.app import ExplorerApp
from tui.state import State
async def painted():
    app.exit(0)
app = ExplorerApp(State(model="meta-llama/Llama-3.1-8B", gpus="8xH100"), environment={})
app._furnish = painted
app.run(headless=True, size=(120, 40))
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


def processor_seconds(code: str, runs: int = 7) -> float:
    """User and system time of one interpreter that runs `code`; the median of some."""
    found = []
    for _ in range(runs):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(found)


def first_paint() -> dict[str, float]:
    """Processor time of importing textual alone, and of a start until the first screen is drawn."""
    alone, painted = processor_seconds(_IMPORT), processor_seconds(_PAINT)
    return {
        "import_textual_s": round(alone, 3),
        "start_to_first_paint_s": round(painted, 3),
        "ratio": round(painted / alone, 2),
    }


def write(result: dict[str, object]) -> None:
    """What is known so far."""
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2), flush=True)


async def main() -> None:
    """Measures and writes."""
    result: dict[str, object] = {"processors": os.cpu_count(), "first_paint_processor_time": first_paint()}
    result["evaluation_processor_time_ms"] = [evaluated(*model) for model in MODELS]
    write(result)
    if "--processor-time" in sys.argv:
        return
    result["keys_wall_time"] = []
    for model in MODELS:
        load = os.getloadavg()[0]
        result["keys_wall_time"].append(await measure(*model) | {"load_average": [load, os.getloadavg()[0]]})
        write(result)


if __name__ == "__main__":
    asyncio.run(main())
