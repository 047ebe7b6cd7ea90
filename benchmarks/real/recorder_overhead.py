"""What recording costs: steps of one loop with the runner's hooks and without, taking turns in one process.

    .venv/bin/python -m benchmarks.real.recorder_overhead

writes benchmarks/results/recorder_overhead.json and .md. Turns of a few steps each go with and without the hooks, so
that what else the machine does falls on both alike; each pair of turns gives one ratio.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.places import RESULTS
from gpu_plan.executor.runner.hooks import pytorch as torch_hooks
from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.options import Options
from gpu_plan.executor.runner.recorder import Recorder

SIZES = {
    "a step of some 15 ms": {"hidden": 64, "layers": 2, "batch": 4, "length": 64, "turns": 4},
    "a step of some 100 ms": {"hidden": 192, "layers": 4, "batch": 4, "length": 128, "turns": 1},
}
TURN, ACCUMULATION = 3, 2


class Hooks:
    """The runner's hooks on this process, which can be put aside."""

    def __init__(self, folder: Path) -> None:
        self.plain_backward = torch.autograd.backward
        self.recorder = Recorder(Options(run_id="overhead", folder=folder))
        imports = PostImport(self.recorder.failed)
        self.observer = torch_hooks.install(torch, self.recorder, imports)
        self.backward = torch.autograd.backward
        self.calls = 0
        from torch.optim import optimizer as module  # type: ignore[attr-defined]

        self.tables = [module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks]
        self.kept = [dict(table) for table in self.tables]

    def put_aside(self, model: Any) -> dict[str, Any]:
        """As if the script had been started without the runner."""
        torch.autograd.backward = self.plain_backward
        for table in self.tables:
            table.clear()
        names = ("_forward_pre_hooks", "_forward_hooks")
        mine = {name: dict(getattr(model, name)) for name in names}
        for name in names:
            getattr(model, name).clear()
        return mine

    def put_back(self, model: Any, mine: dict[str, Any]) -> None:
        """Recording goes on; the time between was no training."""
        torch.autograd.backward = self.backward
        for table, kept in zip(self.tables, self.kept, strict=True):
            table.update(kept)
        for name, hooks in mine.items():
            getattr(model, name).update(hooks)
        self.recorder.set_aside()


def measure(hooks: Hooks, size: dict[str, int], turns: int) -> dict[str, Any]:
    """Ratios of wall and of processor time, one of each per pair of turns; seconds are medians per step."""
    size = dict(size)
    turns *= size.pop("turns")
    model, step = job(**size)
    for _ in range(3):
        step()
    wall, processor, plain = [], [], []
    steps_before = hooks.recorder.ledger.count
    for turn in range(turns):
        times = {}
        for recorded in (True, False) if turn % 2 else (False, True):
            mine = {} if recorded else hooks.put_aside(model)
            began, used = time.perf_counter(), time.process_time()
            for _ in range(TURN):
                step()
            times[recorded] = (time.perf_counter() - began, time.process_time() - used)
            if not recorded:
                hooks.put_back(model, mine)
        wall.append(times[True][0] / times[False][0])
        processor.append(times[True][1] / times[False][1])
        plain.append(times[False][1] / TURN)
    return {
        "steps_with": hooks.recorder.ledger.count - steps_before,
        "steps_without": turns * TURN,
        "step_processor_seconds": statistics.median(plain),
        "wall_ratio_median": statistics.median(wall),
        "processor_ratio_median": statistics.median(processor),
        "processor_ratio_quartiles": statistics.quantiles(processor, n=4),
    }


def job(hidden: int, layers: int, batch: int, length: int) -> tuple[Any, Callable[[], None]]:
    """A Llama and its step of two micro batches."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(512, (batch, length))

    def step() -> None:
        for _ in range(ACCUMULATION):
            (model(input_ids=ids, labels=ids).loss / ACCUMULATION).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def cost_per_step(hooks: Hooks, repeats: int = 2000) -> dict[str, float]:
    """Processor time of everything the recorder does in a step, the writing of its record included."""
    recorder, loss = hooks.recorder, torch.ones(())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    model, ids = torch.nn.Linear(1, 1), torch.ones(4, 64, dtype=torch.long)
    hooks.observer.forwards.settle()
    call = hooks.observer.forwards._called
    hooks.observer.forwards._primary = lambda: model
    hooks.observer.forwards.roots.add(model)
    began = time.process_time()
    for _ in range(repeats):
        for _ in range(ACCUMULATION):
            call(model, (), {"input_ids": ids})
            recorder.backward_begins(loss)
            recorder.backward_ends()
        recorder.optimizer_begins()
        recorder.optimizer_ends(optimizer)
    events = (time.process_time() - began) / repeats
    began = time.process_time()
    for _ in range(100):
        recorder.write()
    return {"events_seconds": events, "write_seconds": (time.process_time() - began) / 100}


EVENTS = ("forward_begins", "backward_begins", "backward_ends", "optimizer_begins", "optimizer_ends")


def cost_in_loop(hooks: Hooks, steps: int = 40) -> float:
    """Processor time per step within the recorder's events, caches as cold as the model leaves them; with writing."""
    recorder, spent = hooks.recorder, [0.0]

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent[0] += time.process_time() - began

        return measured

    model, step = job(**{name: value for name, value in SIZES["a step of some 100 ms"].items() if name != "turns"})
    step()
    spent[0] = 0.0
    for name in EVENTS:
        setattr(recorder, name, timed(getattr(recorder, name)))
    for _ in range(steps):
        step()
    for name in EVENTS:
        delattr(recorder, name)
    del model
    return spent[0] / steps


def markdown(result: dict[str, Any]) -> str:
    """The result for people."""
    cost = result["cost"]
    lines = [
        "# What the runner's recording costs",
        "",
        f"torch {result['torch']}, {result['machine']}, one thread; a Llama with two micro batches a step. Written by "
        "`python -m benchmarks.real.recorder_overhead`.",
        "",
        "| step | processor time of a step | with / without, processor time | quartiles | with / without, wall |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in result["sizes"].items():
        low, _, high = row["processor_ratio_quartiles"]
        lines.append(
            f"| {name} | {row['step_processor_seconds'] * 1e3:.1f} ms | {row['processor_ratio_median']:.4f} "
            f"| {low:.4f} to {high:.4f} | {row['wall_ratio_median']:.4f} |"
        )
    lines += [
        "",
        f"All events of a step (two micro batches) take {cost['events_seconds'] * 1e6:.0f} µs of processor time in a "
        f"loop of nothing else, {cost['in_loop_seconds'] * 1e6:.0f} µs between a model's (writing included); a "
        f"record with its most steps is written in {cost['write_seconds'] * 1e3:.2f} ms, at most every half second "
        f"({cost['write_seconds'] / 0.5:.2%} of the time).",
        "",
        "Not measured: CUDA, where a border reads and resets the allocator's counters instead of /proc.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=40, help="pairs of turns for each size")
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        hooks = Hooks(Path(folder))
        sizes = {name: measure(hooks, size, turns) for name, size in SIZES.items()}
        in_loop = cost_in_loop(hooks)
        cost = cost_per_step(hooks) | {"in_loop_seconds": in_loop}
    result = {
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[1]:.1f}",
        "sizes": sizes,
        "cost": cost,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "recorder_overhead.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (RESULTS / "recorder_overhead.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
