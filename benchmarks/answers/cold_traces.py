"""Twenty models that are not shipped as traces, planned cold, beside importing their classes.

    .venv/bin/python -m benchmarks.answers.cold_traces [--pairs 1] [MODEL ...]

Processor seconds (user and system) of all processes of a plan, each with an empty home, in turns: first the class,
then the plan on a cluster that holds the model. A pair of all of them takes some six minutes. Models that are not asked
for keep their figures. Writes benchmarks/results/cold_traces.json and .md.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.answers.first_answer import Took, took
from benchmarks.places import RESULTS
from gpu_plan.planner.model.catalog_index import load_index

_PLAN = "import sys; sys.argv[0] = 'plan'; from gpu_plan.cli import entry; entry()"
GOALS = {"moe": 2.0}
"""Times the class, by kind; of every other kind `_GOAL`."""
_GOAL = 1.3


@dataclass(frozen=True, slots=True)
class Cold:
    """What is asked of one model."""

    gpus: str
    """A cluster that holds it."""
    imports: str
    """The class that is built."""


MODELS = {
    "CohereLabs/aya-23-8B": Cold("8xH100", "CohereForCausalLM"),
    "google/gemma-7b": Cold("8xH100", "GemmaForCausalLM"),
    "bigcode/starcoder2-7b": Cold("8xA100-80GB", "Starcoder2ForCausalLM"),
    "facebook/opt-13b": Cold("8xH100", "OPTForCausalLM"),
    "EleutherAI/gpt-neox-20b": Cold("8xH200", "GPTNeoXForCausalLM"),
    "codellama/CodeLlama-34b-Instruct-hf": Cold("2x8xH100", "LlamaForCausalLM"),
    "tiiuae/falcon-40b": Cold("2x8xH100", "FalconForCausalLM"),
    "Qwen/Qwen1.5-MoE-A2.7B": Cold("8xH100", "Qwen2MoeForCausalLM"),
    "microsoft/Phi-3.5-MoE-instruct": Cold("2x8xH100", "PhimoeForCausalLM"),
    "databricks/dbrx-instruct": Cold("8x8xH100", "DbrxForCausalLM"),
    "FacebookAI/roberta-base": Cold("1xA100", "RobertaModel"),
    "facebook/esm2_t33_650M_UR50D": Cold("1xA100-80GB", "EsmForMaskedLM"),
    "facebook/bart-large": Cold("2xL40S", "BartForConditionalGeneration"),
    "google/flan-t5-xxl": Cold("8xH100", "T5ForConditionalGeneration"),
    "facebook/dinov2-giant": Cold("1xH100", "Dinov2Model"),
    "microsoft/swin-tiny-patch4-window7-224": Cold("1xL40S", "SwinForImageClassification"),
    "llava-hf/llava-1.5-7b-hf": Cold("8xH100", "LlavaForConditionalGeneration"),
    "Qwen/Qwen2.5-VL-7B-Instruct": Cold("8xH100", "Qwen2_5_VLForConditionalGeneration"),
    "state-spaces/mamba-2.8b-hf": Cold("8xA100-80GB", "MambaForCausalLM"),
    "ai21labs/Jamba-v0.1": Cold("2x8xH200", "JambaForCausalLM"),
}
"""Models of the catalog, of every kind and from some million to a hundred billion parameters."""


def measured(model: str, pairs: int) -> dict[str, Any]:
    """Medians of one model's pairs."""
    cold = MODELS[model]
    plans: list[Took] = []
    classes: list[Took] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as home:
            classes.append(took([sys.executable, "-c", f"from transformers import {cold.imports}"], home))
            plans.append(took([sys.executable, "-c", _PLAN, model, "--gpus", cold.gpus], home))
    return {
        "pairs": pairs,
        "clock_seconds": round(median(one.clock for one in plans), 2),
        "seconds": round(median(one.processor for one in plans), 2),
        "class_seconds": round(median(one.processor for one in classes), 2),
        "ratio": round(median(mine.processor / its.processor for mine, its in zip(plans, classes, strict=True)), 2),
    }


def page(found: dict[str, Any]) -> str:
    """The figures as a page, the farthest from its class last."""
    entries = {entry.id: entry for entry in load_index().values()}
    rows = {model: one for model, one in found["models"].items() if model in MODELS}
    kinds = {model: entries[model].kind for model in rows}
    met = sum(one["ratio"] <= GOALS.get(kinds[model], _GOAL) for model, one in rows.items())
    middle = median(one["ratio"] for one in rows.values())
    head = [
        "# Models traced cold\n",
        f"{len(rows)} models of the catalog that are not shipped as traces, planned with an empty home, beside"
        f" importing their classes ({found['machine']}): processor seconds of all processes, in turns. The goal is 1.3"
        f" times the class, of a mixture 2 times: {met} of {len(rows)} meet it; the middle one takes {middle:.2f} times"
        " its class. Written by `python -m benchmarks.answers.cold_traces`.\n",
        "| model | kind | parameters, billions | cluster | pairs | load | plan | its class | times the class |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"| {model} | {kinds[model]} | {(entries[model].meta_params or 0) / 1e9:.2f} | {MODELS[model].gpus}"
        f" | {one['pairs']} | {one['load']:.0f} | {one['seconds']:.2f} | {one['class_seconds']:.2f}"
        f" | {one['ratio']:.2f} |"
        for model, one in sorted(rows.items(), key=lambda row: row[1]["ratio"])
    ]
    return "\n".join((*head, *lines)) + "\n"


def main() -> None:
    """Measures the models that are asked for, all without a word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--pairs", type=int, default=1)
    asked = parser.parse_args()
    path = RESULTS / "cold_traces.json"
    found = json.loads(path.read_text()) if path.exists() else {"models": {}}
    cores = len(os.sched_getaffinity(0))
    found["machine"] = f"{platform.machine()}, Python {platform.python_version()}, {cores} cores"
    for model in asked.models or MODELS:
        found["models"][model] = {"load": round(os.getloadavg()[0], 1), **measured(model, asked.pairs)}
        print(model, found["models"][model], flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
