"""How soon the explorer's picture follows a key, and its first paint after the start; writes results/explorer.json.

The application runs without a terminal, with its real planner processes. Each change is one key of a fixed
pseudo-random sequence, every key as likely as every other: strategy, offload, checkpointing, micro batch,
accumulation, optimizer, number and kind of GPUs. A change counts from the key's event until the screen has been drawn
with the first picture of the new state (the tensors' sums, or model states alone where those are waited for), and until
it has been drawn with the exact one (the allocator simulated). There are two series of the same keys:

without_pause        the next key comes as soon as the first picture stands: nothing can be worked out ahead
three_keys_a_second  the next key comes a third of a second after the last one, or when its first picture stands; in
                     the meantime the planner completes the picture and works out what the next key may lead to

Told apart are states evaluated after their key (`replayed`), before it (`ahead`), states in which the explorer has
been before (`kept`), those that need a new trace of the model (`traced`), and those that the planner refuses. The load
of the machine is noted beside the figures, and so is the processor time that a change takes, which depends on it far
less.

    python -m benchmarks.explorer.latency                     # everything; the first run makes the traces
    python -m benchmarks.explorer.latency --processor-time    # what does not depend on the machine's load
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys

from benchmarks.explorer.evaluated import evaluated
from benchmarks.places import RESULTS
from gpu_plan.tui.start import draw_at_once

RESULT = RESULTS / "explorer.json"
CHANGES = 200
PAUSES = {"without_pause": 0.0, "three_keys_a_second": 1 / 3}
MODELS = (("meta-llama/Llama-3.1-8B", "8xH100"), ("meta-llama/Llama-3.1-405B", "16x8xH100"))


def processor_time(model: str, gpus: str) -> dict[str, object]:
    """Milliseconds of the replaying process alone, and how many states were at hand, traced, refused."""
    from benchmarks.explorer.keys import spread

    times = evaluated(model, gpus, CHANGES)
    told: dict[str, object] = {"model": model, "gpus": gpus, "keys": CHANGES, "states": dict(times.counts)}
    found = {"first": times.first, "sums": times.sums, "exact": times.exact, "exact_behind_trace": times.behind_trace}
    return told | {f"{name}_picture_ms": spread(values) for name, values in found.items() if values}


_IMPORT = "import textual.app, textual.widgets"
_PAINT = """
import sys
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.state import State
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
    draw_at_once()
    # Textual reads its pace when it is imported.
    from benchmarks.explorer.keys import press_keys, told

    result: dict[str, object] = {"processors": os.cpu_count(), "first_paint_processor_time": first_paint()}
    alone: list[dict[str, object]] = []
    result["evaluation_processor_time_ms"] = alone
    for model in MODELS:
        alone.append(processor_time(*model))
        write(result)
    if "--processor-time" in sys.argv:
        return
    rows: list[dict[str, object]] = []
    result["keys_wall_time"] = rows
    for model, gpus in MODELS:
        for name, pause in PAUSES.items():
            load = os.getloadavg()[0]
            series = told(await press_keys(model, gpus, changes=CHANGES, pause=pause))
            rows.append(
                {"model": model, "gpus": gpus, "series": name, "seconds_between_keys": round(pause, 3), **series}
                | {"load_average": [round(load, 2), round(os.getloadavg()[0], 2)]}
            )
            write(result)


if __name__ == "__main__":
    asyncio.run(main())
