"""Predicted step times against published training speeds.

    .venv/bin/python -m benchmarks.speed_truth

reads benchmarks/data/published_speed.json (facts, each with its source), asks the same code that ranks plans, and
writes benchmarks/results/speed_truth.json and .md. Nothing is fitted: rates come from published measurements of
operators and transfers, never from these rows.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.speed_rows import Row, Setup, group_of, measured_step_seconds, rows, setup_of
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.model import SpeedModel
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider

RESULTS = Path(__file__).parent / "results"


class Estimator:
    """Judges rows; a model's traces are made once for all of its rows."""

    def __init__(self, speed: SpeedModel, folder: Path) -> None:
        self._speed = speed
        self._folder = folder
        self._providers: dict[tuple[str, ...], TraceProvider] = {}

    def line(self, row: Row) -> Row:
        """One row of the table, times in seconds."""
        setup = setup_of(row)
        evaluator = Evaluator(
            provider=self._provider(setup), workload=setup.workload, cluster=setup.cluster, speed=self._speed
        )
        family = Family(strategy=STRATEGIES[setup.strategy], offload=Offload.NONE, checkpointing=setup.checkpointing)
        batch = Batch(micro_batch=setup.micro_batch, accumulation_steps=setup.accumulation_steps)
        time = evaluator.judge(family, batch).time
        measured = measured_step_seconds(row)
        return {
            "id": row["id"],
            "group": group_of(row),
            "source": row["source"],
            "model": row["model"],
            "gpus": f"{row['gpu']['count']}x{row['gpu']['model']}",
            "strategy": setup.strategy,
            "micro_batch": setup.micro_batch,
            "seq_len": setup.workload.seq_len,
            "checkpointing": str(setup.checkpointing),
            "measured": measured,
            "predicted": time.step_seconds,
            "low": time.low_seconds,
            "high": time.high_seconds,
            "ratio": time.step_seconds / measured,
            "inside": time.low_seconds <= measured <= time.high_seconds,
            "parts": {
                "forward": time.forward_seconds,
                "backward": time.backward_seconds,
                "recompute": time.recompute_seconds,
                "optimizer": time.optimizer_seconds,
                "communication": time.communication_seconds,
                "exposed": time.exposed_communication_seconds,
            },
            "basis": time.basis,
            "differences": list(setup.differences),
        }

    def _provider(self, setup: Setup) -> TraceProvider:
        source = self._source(setup)
        adapter = setup.adapter.key() if setup.adapter else ""
        device = device_kind(setup.cluster.gpu)
        key = (source.digest, device.key, str(setup.workload.attention), adapter)
        if key not in self._providers:
            self._providers[key] = TraceProvider(
                source=source, device=device, attention=str(setup.workload.attention), adapter=setup.adapter
            )
        return self._providers[key]

    def _source(self, setup: Setup) -> ModelSource:
        if setup.config is None:
            return resolve(setup.model)
        text = json.dumps(dict(setup.config), sort_keys=True)
        path = self._folder / f"{abs(hash(text))}.json"
        path.write_text(text)
        return resolve(str(path))


def summary(lines: list[Row]) -> Row:
    """Spread of predicted over measured step times."""
    ratios = sorted(line["ratio"] for line in lines)
    tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
    inside = sum(line["inside"] for line in lines) / len(lines)
    return {
        "rows": len(lines),
        "median": median(ratios),
        "p10": tenths[0],
        "p90": tenths[-1],
        "inside": inside,
    }


def run(speed: SpeedModel, wanted: Callable[[Row], bool] = lambda row: True) -> Row:
    """Every row, and the spread of each group."""
    with tempfile.TemporaryDirectory() as folder:
        estimator = Estimator(speed, Path(folder))
        lines = [estimator.line(row) for row in rows() if wanted(row)]
    names = list(dict.fromkeys(line["group"] for line in lines))
    groups = {name: summary([line for line in lines if line["group"] == name]) for name in names}
    medians = [group["median"] for group in groups.values()]
    return {"groups": groups, "all": summary(lines), "median_of_groups": median(medians), "rows": lines}


def markdown(found: Row) -> str:
    """The table in words."""
    out = [
        "# Predicted against published step times",
        "",
        "Written by `python -m benchmarks.speed_truth`. Ratio: predicted / measured step time; above one the estimate",
        "is slow. Inside: share of rows within the stated interval. No rate was fitted to these rows.",
        "",
        "| group | rows | median | 10 % | 90 % | inside |",
        "|---|---|---|---|---|---|",
    ]
    every: dict[str, Any] = {**found["groups"], "all rows": found["all"]}
    for name, group in every.items():
        figures = " | ".join(f"{group[key]:.2f}" for key in ("median", "p10", "p90"))
        out.append(f"| {name} | {group['rows']} | {figures} | {group['inside']:.0%} |")
    out += [
        "",
        f"Median over groups: {found['median_of_groups']:.2f}.",
        "",
        "| row | model | GPUs | strategy | micro batch x length | measured s | predicted s | interval | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in found["rows"]:
        out.append(
            f"| {line['id']} | {line['model']} | {line['gpus']} | {line['strategy']} | "
            f"{line['micro_batch']} x {line['seq_len']} | {line['measured']:.3g} | {line['predicted']:.3g} | "
            f"{line['low']:.3g} to {line['high']:.3g} | {line['ratio']:.2f} |"
        )
    differing = [line for line in found["rows"] if line["differences"]]
    out += ["", f"{len(differing)} rows differ from what was built:", ""]
    texts: dict[str, int] = {}
    for line in differing:
        for text in line["differences"]:
            texts[text] = texts.get(text, 0) + 1
    out += [f"- {text}: {count} rows" for text, count in texts.items()]
    return "\n".join(out) + "\n"


def main() -> int:
    """Writes both result files."""
    found = run(RooflineModel())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed_truth.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "speed_truth.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
