"""What `plan calibrate` is worth on this machine's processor: predicted against measured steps, before and after.

    .venv/bin/python -m benchmarks.real.calibrated_steps [--rounds 3] [--steps 9] [--quick]

Three small models in fp32, one process on one processor (run it under `taskset -c N`). Each round calibrates anew into
a cache folder of its own, plans every model and runs its steps. Both the calibration and the steps are counted in
seconds of the processor, which other work of the machine does not lengthen much. Writes
benchmarks/results/calibrated_steps.json and .md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.speed.calibration.machine import processor_name

_COMMON = {"vocab_size": 8000, "max_position_embeddings": 512}
MODELS: Mapping[str, tuple[dict[str, Any], int, int]] = {
    "llama 36M": (
        {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 8,
            "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4, **_COMMON,
        }, 2, 256,
    ),
    "gpt2 14M": (
        {
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 384, "n_layer": 6, "n_head": 6,
            "vocab_size": 8000, "n_positions": 512, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        }, 4, 128,
    ),
    "qwen2 4M": (
        {
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 128, "num_hidden_layers": 12,
            "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, **_COMMON,
        }, 1, 64,
    ),
}  # fmt: skip
"""Config, samples and tokens of a step: products, a mixture, and small operators."""
_STEP = """
import json, sys, time
import torch
from transformers import AutoConfig, AutoModelForCausalLM
folder, samples, tokens, steps = sys.argv[1], *map(int, sys.argv[2:])
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randint(0, 8000, (samples, tokens))
found = []
for _ in range(2 + steps):
    start = time.process_time()
    model(input_ids=batch, labels=batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    found.append(time.process_time() - start)
print(json.dumps(found[2:]))
"""


def measured(folder: Path, samples: int, tokens: int, steps: int) -> float:
    """Seconds of the processor of a step: the 30th percentile, as a calibration takes it."""
    command = [sys.executable, "-c", _STEP, str(folder), str(samples), str(tokens), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = sorted(json.loads(done.stdout.splitlines()[-1]))
    return float(found[round(0.3 * (len(found) - 1))])


def planned(folder: Path, samples: int, tokens: int, cache: Path) -> dict[str, Any]:
    """What `plan` says of the step, with the records of a cache folder."""
    options = ["--gpus", "cpu", "--pin", "--strategy", "single", "--precision", "fp32", "--stack", "plain"]
    options += ["--micro-batch", str(samples), "--seq-len", str(tokens), "--json"]
    document = json.loads(_plan([str(folder), *options], cache))
    speed: dict[str, Any] = (document["plans"] or document["rejected"])[0]["speed"]
    return speed


def _plan(words: list[str], cache: Path) -> str:
    environment = {**os.environ, "GPU_PLAN_CACHE": str(cache)}
    command = [sys.executable, "-m", "gpu_plan", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return done.stdout


_BY_PROCESSOR = """
import sys, time
time.perf_counter = time.process_time
from gpu_plan.cli import main
sys.exit(main(sys.argv[1:]))
"""


def _calibrate(cache: Path, *, quick: bool) -> None:
    """`plan calibrate` with the processor's clock in place of the wall's."""
    words = ["calibrate", "--gpus", "cpu", *(["--quick"] if quick else [])]
    environment = {**os.environ, "GPU_PLAN_CACHE": str(cache)}
    subprocess.run([sys.executable, "-c", _BY_PROCESSOR, *words], capture_output=True, check=True, env=environment)


def lines(rounds: int, steps: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """One line for each round and model, seconds."""
    with tempfile.TemporaryDirectory() as made:
        folders = {name: Path(made) / name.replace(" ", "-") for name in MODELS}
        for name, (config, _, _) in MODELS.items():
            folders[name].mkdir()
            (folders[name] / "config.json").write_text(json.dumps(config))
        before = {
            name: planned(folders[name], samples, tokens, Path(made) / "none")
            for name, (_, samples, tokens) in MODELS.items()
        }
        for number in range(rounds):
            cache = Path(made) / f"cache-{number}"
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            begun = time.perf_counter()
            _calibrate(cache, quick=quick)
            took = time.perf_counter() - begun
            for name, (_, samples, tokens) in MODELS.items():
                ran = measured(folders[name], samples, tokens, steps)
                after = planned(folders[name], samples, tokens, cache)
                yield {
                    "round": number,
                    "calibration_seconds": took,
                    "model": name,
                    "measured": ran,
                    "before": _told(before[name]),
                    "after": _told(after),
                    "basis": after["basis"],
                }


def _told(speed: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: speed[key]
        for name, key in (("expected", "step_seconds"), ("low", "step_seconds_low"), ("high", "step_seconds_high"))
    }


def page(found: list[dict[str, Any]]) -> str:
    """Markdown: medians over the rounds."""
    parts = ["# Steps on a processor, before and after `plan calibrate`\n"]
    parts += ["Written by `python -m benchmarks.real.calibrated_steps` on a machine with other work, in seconds of the"]
    parts += ["processor. Ratios are of a round's own pair, predicted / measured; the table gives their medians.\n"]
    parts += [f"{processor_name()}, {len(os.sched_getaffinity(0))} processors, {1 + found[-1]['round']} rounds\n"]
    parts += ["| model | measured, s | before | inside | after | inside |\n|---|---|---|---|---|---|"]
    for name in MODELS:
        own = [line for line in found if line["model"] == name]
        cells = [f"{median(line['measured'] for line in own):.3f}"]
        for when in ("before", "after"):
            ratios = [line[when]["expected"] / line["measured"] for line in own]
            inside = sum(line[when]["low"] <= line["measured"] <= line[when]["high"] for line in own)
            cells += [f"{median(ratios):.2f}", f"{inside} of {len(own)}"]
        parts.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.calibrated_steps", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="calibrations, each with its own steps")
    parser.add_argument("--steps", type=int, default=9, metavar="N", help="measured steps of each model")
    parser.add_argument("--quick", action="store_true", help="calibrate for a quarter of a minute")
    given = parser.parse_args(arguments)
    found = list(lines(given.rounds, given.steps, quick=given.quick))
    (RESULTS / "calibrated_steps.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "calibrated_steps.md").write_text(page(found))
    print(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
