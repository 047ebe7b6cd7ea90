"""One model of each kind that the catalog has, asked for training and for inference as a user asks: what ends in an
error, and what is answered without a way out.

    .venv/bin/python -m benchmarks.sweeps.catalog_sweep [--only WORD,...] [--task infer]

writes benchmarks/results/catalog_sweep.json and .md after each answer (an hour on two idle cores); what was not asked
this time stays as it was. A kind is a model type, its class and how its weights are stored; of each the smallest config
is asked.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.places import RESULTS, ROOT

CATALOG = ROOT / "planner" / "model" / "catalog"
TASKS = ("infer", "train")
GPUS = "2xA100-80GB"
SECONDS = 600
FITS, DOES_NOT = 0, 1

Row = dict[str, Any]


def kinds() -> dict[str, str]:
    """What each kind is called, and the model that stands for it."""
    found: dict[str, str] = {}
    for path in sorted(CATALOG.glob("*.json"), key=lambda path: (path.stat().st_size, path.name)):
        config = json.loads(path.read_text())
        if isinstance(config, dict) and "model_type" in config:
            found.setdefault(_kind(config), path.stem.replace("--", "/", 1))
    return dict(sorted(found.items()))


def _kind(config: Mapping[str, Any]) -> str:
    stored = (config.get("quantization_config") or {}).get("quant_method")
    words = [
        config["model_type"],
        (config.get("architectures") or ["no class named"])[0],
        *([stored] if stored else []),
    ]
    return " · ".join(map(str, words))


def asked(model: str, task: str, cache: str) -> Row:
    """One question, answered by the command line."""
    command = [sys.executable, "-m", "gpu_plan", model, "--gpus", GPUS, "--task", task, "--json", "--quiet"]
    environment = {**os.environ, "GPU_PLAN_CACHE": cache}
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return {"exit": None, "said": f"not answered within {SECONDS} s", "seconds": SECONDS}
    row: Row = {"exit": done.returncode, "seconds": round(time.monotonic() - begun, 1)}
    if done.returncode not in (FITS, DOES_NOT):
        return row | {"said": (done.stderr.strip().splitlines() or [""])[-1][:300]}
    return row | _answer(json.loads(done.stdout))


def _answer(document: Mapping[str, Any]) -> Row:
    """The first plan in a few words, and what else could be done."""
    others = [one["change"] for one in document["alternatives"]]
    if not document["plans"]:
        return {
            "first": "nothing fits",
            "else": others,
            "why_none": document.get("no_change") or document.get("nearest_change"),
        }
    plan = document["plans"][0]
    strategy, memory = plan["strategy"], plan["memory"]
    used, of = (memory[name] / 2**30 for name in ("device_used_bytes", "capacity_bytes"))
    offload = "" if strategy["offload"] == "none" else f" + {strategy['offload']} offload"
    words = f"{strategy['name']}{offload}, {strategy['micro_batch_size']} at once, {used:.1f} of {of:.1f} GiB"
    return {"first": words, "verdict": plan["verdict"], "else": others}


def silly(row: Row) -> str | None:
    """What is wrong with an answer as it stands, or None."""
    if row["exit"] not in (0, 1, 2):
        return f"exit {row['exit']}"
    if row["exit"] == DOES_NOT and not row["else"] and row["first"] == "nothing fits" and not row["why_none"]:
        return "nothing fits, nothing else is offered, and no reason is told"
    return None


def table(rows: list[Row]) -> str:
    """As Markdown."""
    wrong = sum(row["wrong"] is not None for row in rows)
    refused = sum(row["exit"] == 2 for row in rows)
    lines = [
        "# One model of each kind of catalog",
        "",
        f"Made by `python -m benchmarks.sweeps.catalog_sweep`: {len(rows)} of {len(TASKS) * len(kinds())} questions on"
        f" {GPUS}, of which {refused} are refused in one line and {wrong} are answered wrongly.",
        "",
        "| kind | model | task | exit | first, or the refusal | else | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        said = row.get("first") or row.get("said", "")
        verdict = ", tight" if row.get("verdict") == "tight" else ""
        mark = f" **{row['wrong']}**" if row["wrong"] else ""
        cells = (row["kind"], row["model"], row["task"], str(row["exit"]), said.replace("|", "\\|") + verdict + mark)
        lines.append(f"| {' | '.join(cells)} | {', '.join(row.get('else', [])[:3])} | {row['seconds']} |")
    return "\n".join(lines) + "\n"


def chosen(words: str) -> dict[str, str]:
    """Kinds whose name or model has one of the words in it; all where there is none."""
    wanted = [word.lower() for word in words.split(",") if word]
    return {
        kind: model
        for kind, model in kinds().items()
        if not wanted or any(word in f"{kind} {model}".lower() for word in wanted)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="WORD,...", default="", help="kinds whose name or model has one of them in it"
    )
    parser.add_argument("--task", choices=TASKS, help="this question alone")
    given = parser.parse_args()
    kept = RESULTS / "catalog_sweep.json"
    rows = {(row["kind"], row["task"]): row for row in (json.loads(kept.read_text()) if kept.exists() else [])}
    with tempfile.TemporaryDirectory(prefix="plan-sweep-") as cache:
        for kind, model in chosen(given.only).items():
            for task in (given.task,) if given.task else TASKS:
                row = {"kind": kind, "model": model, "task": task, **asked(model, task, cache)}
                row["wrong"] = silly(row)
                rows[kind, task] = row
                print(model, task, row["exit"], row.get("first") or row.get("said"), row["wrong"] or "", flush=True)
                ordered = [rows[key] for key in sorted(rows)]
                kept.write_text(json.dumps(ordered, indent=1) + "\n")
                (RESULTS / "catalog_sweep.md").write_text(table(ordered))


if __name__ == "__main__":
    main()
