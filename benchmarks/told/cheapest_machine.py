"""The cheapest machine as `plan MODEL --prefer cost` finds it, against a whole search on every one of them.

python -m benchmarks.told.cheapest_machine [MODEL ...] asks for ten models which of six machines trains a billion
tokens for the least, then `plan MODEL --gpus EACH --prefer cost` on each, and writes results/cheapest_machine.json
and .md.

Machines are compared by the simplest plan that fits, at its best batch, and by all plans where bounds leave it open
which is the cheapest; this says what that costs: `dearer` is what the named machine costs by its own best plan beside
the cheapest of all.
"""

import argparse
import contextlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.cli import main as plan

MODELS = (
    "openai-community/gpt2", "EleutherAI/pythia-410m-deduped", "EleutherAI/pythia-1b", "EleutherAI/pythia-1.4b",
    "HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM-1.7B", "Qwen/Qwen2-1.5B", "EleutherAI/pythia-2.8b",
    "meta-llama/Llama-3.1-8B", "EleutherAI/pythia-6.9b",
)  # fmt: skip
MACHINES = ("1xT4", "1xL4", "1xA100-80GB", "1xH100", "8xA100-80GB", "8xH100")
"""Somebody prints a price for each of them."""


def asked(words: Sequence[str]) -> dict[str, Any]:
    """What `plan` answers, as JSON; empty where it refuses."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        plan([*words, "--seq-len", "1024", "--prefer", "cost", "--tokens", "1B", "--quiet", "--json"])
    return json.loads(out.getvalue()) if out.getvalue() else {}


def costs(model: str, machines: Iterable[str]) -> dict[str, float]:
    """Dollars for the billion tokens by the best plan of each machine; those on which nothing fits are left out."""
    found = {}
    for spec in machines:
        answer = asked([model, "--gpus", spec, "--top", "1"])
        job = answer.get("whole_job")
        if answer.get("plans") and answer["plans"][0]["fits"] and job and job["usd"] is not None:
            found[spec] = job["usd"]
    return found


def compared(named: Mapping[str, float], searched: Mapping[str, float]) -> dict[str, Any]:
    """The cheapest of those that were `named` with their cost, beside the cheapest that was `searched`."""
    first = min(named, key=lambda spec: (named[spec], spec), default=None)
    best = min(searched, key=lambda spec: (searched[spec], spec), default=None)
    both = first is not None and best is not None and first in searched
    return {
        "named": first,
        "cheapest": best,
        "same": first == best,
        "dearer": searched[first] / searched[best] - 1 if both and first and best else None,
        "missed": sorted(set(searched) - set(named)),
        "found": {spec: round(cost, 2) for spec, cost in sorted(named.items())},
        "searched": {spec: round(cost, 2) for spec, cost in sorted(searched.items())},
    }


def measured(model: str) -> dict[str, Any]:
    """One model, both ways."""
    table = asked([model, "--machines", ",".join(MACHINES)])
    named = {one["spec"]: one["job"]["usd"] for one in table.get("machines", ()) if one["job"]["usd"] is not None}
    specs = {one["spec"] for one in table.get("machines", ())} | set(table.get("too_small", ()))
    return {"model": model, **compared(named, costs(model, sorted(specs)))}


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    same = sum(row["same"] for row in rows)
    lines = [
        "# The cheapest machine, found and enumerated",
        "",
        "Made by `python -m benchmarks.told.cheapest_machine`: a billion tokens of 1,024 each, `--prefer cost`, over "
        f"{len(MACHINES)} machines. *Named* is the first of `plan MODEL --machines ...`; *cheapest* that of a whole "
        "search on each; *dearer* what the named one costs beside it, both by their best plan.",
        "",
        f"{same} of {len(rows)} are the same machine.",
        "",
        "| model | named | cheapest | dearer | fits by a whole search alone |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        dearer = "" if row["dearer"] is None else f"{row['dearer']:.1%}"
        missed = ", ".join(row["missed"]) or "none"
        lines.append(f"| {row['model']} | {row['named']} | {row['cheapest']} | {dearer} | {missed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", metavar="MODEL", nargs="*", help="not all models, but these")
    kept = RESULTS / "cheapest_machine.json"
    rows = {row["model"]: row for row in json.loads(kept.read_text())} if kept.exists() else {}
    for model in parser.parse_args().models or MODELS:
        rows[model] = measured(model)
        print(model, rows[model]["named"], rows[model]["cheapest"], rows[model]["dearer"], flush=True)
        ordered = [rows[name] for name in MODELS if name in rows]
        kept.write_text(json.dumps(ordered, indent=1) + "\n")
        (RESULTS / "cheapest_machine.md").write_text(page(ordered))


if __name__ == "__main__":
    main()
