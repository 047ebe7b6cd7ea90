"""Every option and setting of a job with every strategy: it changes the document, is refused, or is named as without
effect.

    .venv/bin/python -m benchmarks.sweeps.option_pairs [--minutes N] [--strategies NAME ...]

writes benchmarks/results/option_pairs.json and .md. Pairs and endings are those of tests/support/option_pairs.py. Of a
run of some strategies the rows of the others stay as they were.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.places import RESULTS
from tests.support.option_pairs import ending, pairs, write_models

_ENDINGS = ("changes", "refused", "named", "silent")


def run(minutes: float | None, strategies: Collection[str] = ()) -> dict[str, Any]:
    """All pairs, or those of some strategies, with the reason of each refusal; in a fixed random order as many as
    `minutes` allow, where given."""
    started = time.monotonic()
    rows: list[dict[str, Any]] = []
    plain_of: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="plan-pairs-") as name:
        # A cache that is given is kept: traces of the same model are the same.
        os.environ.setdefault("GPU_PLAN_CACHE", str(Path(name) / "cache"))
        models = write_models(Path(name))
        every = list(pairs())
        listed = [pair for pair in every if not strategies or pair.strategy in strategies]
        if minutes is not None:
            random.Random(14).shuffle(listed)
        for pair in listed:
            if minutes is not None and time.monotonic() - started > 60 * minutes:
                break
            found, said = ending(pair, models, plain_of)
            rows.append({"pair": pair.label, "task": pair.task, "strategy": pair.strategy, "option": pair.option,
                         "ending": found, "said": said.replace(str(models.of(pair)), "MODEL")})  # fmt: skip
            if found == "silent":
                print(pair.label, flush=True)
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "seconds": round(time.monotonic() - started),
        "all": len(every),
        "pairs": rows,
    }


def joined(result: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """`result`, with the earlier rows of strategies that it has none of."""
    mine = {(row["task"], row["strategy"]) for row in result["pairs"]}
    kept = [row for row in earlier["pairs"] if (row["task"], row["strategy"]) not in mine]
    order = {pair.label: place for place, pair in enumerate(pairs())}
    rows = [row for row in (*kept, *result["pairs"]) if row["pair"] in order]
    return {**result, "pairs": sorted(rows, key=lambda row: order[row["pair"]])}


def markdown(result: dict[str, Any]) -> str:
    """The result for people: counts by strategy, and options with the strategies under which they do what."""
    rows = result["pairs"]
    counts = Counter(row["ending"] for row in rows)
    total = ", ".join(f"{counts[name]} {_WORDS[name]}" for name in _ENDINGS)
    lines = [
        "# Options and strategies",
        "",
        f"torch {result['torch']}, transformers {result['transformers']}; a small Llama, or Qwen3-MoE for strategies of"
        " experts, one H100 or two nodes of four, every job pinned. Written by `python -m"
        " benchmarks.sweeps.option_pairs`.",
        "",
        f"{len(rows)} of {result['all']} pairs of an option or setting with a strategy, alone and beside what it is"
        f" about: {total}. A change is one of a figure, a note, the command or a launch file; the echo is none.",
        "",
        "| task | strategy | changes | refused | named as without effect | silent |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for task, strategy in dict.fromkeys((row["task"], row["strategy"]) for row in rows):
        mine = Counter(row["ending"] for row in rows if (row["task"], row["strategy"]) == (task, strategy))
        lines.append(f"| {task} | {strategy} | " + " | ".join(str(mine[name]) for name in _ENDINGS) + " |")
    lines += ["", "| option | changes under | refused under |", "|---|---|---|"]
    for option in dict.fromkeys(row["option"] for row in rows):
        mine = [row for row in rows if row["option"] == option]
        changed = dict.fromkeys(_place(row) for row in mine if row["ending"] == "changes")
        refused = dict.fromkeys(
            _place(row) for row in mine if row["ending"] == "refused" and _place(row) not in changed
        )
        lines.append(f"| `{option}` | {', '.join(changed) or '-'} | {', '.join(refused) or '-'} |")
    return "\n".join([*lines, ""])


_WORDS = {"changes": "change the document", "refused": "are refused", "named": "are named as without effect",
          "silent": "are silent"}  # fmt: skip


def _place(row: dict[str, Any]) -> str:
    return row["strategy"] if row["task"] == "train" else f"{row['strategy']} (inference)"


def main() -> None:
    """Both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after so many; the pairs are then a fixed random sample")
    parser.add_argument("--strategies", nargs="+", default=(), help="only these; rows of the others are kept")
    args = parser.parse_args()
    result = run(args.minutes, args.strategies)
    if args.strategies:
        result = joined(result, json.loads((RESULTS / "option_pairs.json").read_text()))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "option_pairs.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "option_pairs.md").write_text(markdown(result))
    print(Counter(row["ending"] for row in result["pairs"]))


if __name__ == "__main__":
    main()
