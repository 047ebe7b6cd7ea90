"""Our device maps against those of transformers and accelerate, over every decoder of the catalog.

    .venv/bin/python -m benchmarks.told.device_maps [MODEL ...]

writes benchmarks/results/device_maps.json and .md (only when run over the whole catalog). Every model is built as its
real class on the meta device in bf16; theirs are `device_map="auto"` of transformers
(`integrations/accelerate.py: _get_device_map`) and accelerate's `get_balanced_memory` with `infer_auto_device_map`,
both with the class's own `_no_split_modules`. All maps are judged by `evaluate`, on the same budgets.
"""

import argparse
import gc
import json
import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import accelerate
import torch
import transformers
from accelerate.utils.modeling import check_device_map, get_balanced_memory, infer_auto_device_map
from torch import nn
from transformers.integrations.accelerate import _get_device_map

from benchmarks.places import RESULTS
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import CatalogEntry, load_index
from gpu_plan.planner.search.device_map import Placement, Problem, evaluate, modules_of, problem_of, solve
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.problem import DeviceName

DECODERS = ("dense", "moe", "hybrid", "ssm", "multimodal")
BUDGETS: Mapping[str, Mapping[DeviceName, float]] = {
    "two GPUs, 120 %": {0: 0.60, 1: 0.60},
    "two GPUs, 90 %, CPU": {0: 0.45, 1: 0.45, "cpu": 1.2},
    "two GPUs, 60 %, CPU, disk": {0: 0.30, 1: 0.30, "cpu": 0.30},
    "unequal 70/25/15 %, CPU": {0: 0.70, 1: 0.25, 2: 0.15, "cpu": 1.0},
    "one small GPU 35 %, CPU, disk": {0: 0.35, "cpu": 0.40},
}
"""Free bytes as shares of the model's weights; a disk without limit is always there, as accelerate assumes."""

LIMIT_SECONDS = 10.0
"""For one search of ours."""

MEMORY_RATE = 3.35e12
LINK_RATE = 55e9
CPU_RATE = 200e9
DISK_RATE = 5e9
"""Bytes per second for the predicted time: an H100's memory and PCIe 5 x16 as it is reached, a server's memory and a
good NVMe drive; the same for all maps, so they weigh the differences and decide nothing."""
OUTPUT_BYTES = 16384
THEIRS = ("transformers", "accelerate")


@dataclass(slots=True, kw_only=True)
class Figures:
    """One map's cost, or why there is none."""

    offloaded_bytes: int | None = None
    disk_bytes: int | None = None
    boundaries: int | None = None
    fullest: float | None = None
    key: list[float] | None = None
    """For comparison, bytes in thousandths of the weights; None: no map, or one that does not fit."""
    seconds_per_token: float | None = None
    valid: bool = False
    optimal: bool | None = None
    error: str | None = None


GOALS = ("offloaded bytes", "disk bytes", "boundaries", "fullest device")


@dataclass(slots=True, kw_only=True)
class Row:
    """One model on one budget."""

    model: str
    class_name: str
    budget: str
    weight_bytes: int
    ours: Figures
    theirs: dict[str, Figures] = field(default_factory=dict)
    seconds: float = 0.0

    def outcome(self, name: str) -> tuple[str, str]:
        """(`win`, `tie` or `loss`, the goal that decided)."""
        mine, other = self.ours.key, self.theirs[name].key
        if mine == other:
            return ("tie", "")
        if mine is None or other is None:
            return ("loss", "ours has no valid map") if mine is None else ("win", "theirs has no valid map")
        result = "win" if mine < other else "loss"
        return (result, next(goal for goal, a, b in zip(GOALS, mine, other, strict=True) if a != b))


def figures(placement: Placement) -> Figures:
    """What the table keeps of a placement; rounded so that it is the same on every machine."""
    cost = placement.cost
    return Figures(
        offloaded_bytes=cost.offloaded_bytes,
        disk_bytes=cost.disk_bytes,
        boundaries=cost.boundaries,
        fullest=round(cost.fullest, 4),
        key=list(cost.key) if placement.valid else None,
        seconds_per_token=float(f"{placement.seconds_per_token:.4g}") if placement.seconds_per_token else None,
        valid=placement.valid,
        optimal=placement.optimal if placement.proof else None,
    )


def compare(model: nn.Module, entry: CatalogEntry) -> list[Row]:
    """All budgets of one built model."""
    no_split = model._no_split_modules or ()
    modules = modules_of(model)
    weights = problem_of(modules, devices_of({"cpu": None}), no_split=no_split).weight_bytes
    rows = []
    for name, shares in BUDGETS.items():
        budget: dict[DeviceName, int] = {device: int(share * weights) for device, share in shares.items()}
        problem = problem_of(
            modules,
            devices_of(
                {**budget, "disk": None},
                memory_bytes_per_s={**dict.fromkeys(budget, MEMORY_RATE), "cpu": CPU_RATE},
                link_bytes_per_s=dict.fromkeys(budget, LINK_RATE),
                disk_bytes_per_s=DISK_RATE,
            ),
            no_split=no_split,
            output_bytes=OUTPUT_BYTES,
        )
        start = time.perf_counter()
        ours = _guarded(lambda p=problem: ours_accepted(model, p))
        seconds = round(time.perf_counter() - start, 2)
        row = Row(
            model=entry.id,
            class_name=type(model).__name__,
            budget=name,
            weight_bytes=weights,
            ours=ours,
            seconds=seconds,
        )
        row.theirs = {
            "transformers": _guarded(lambda p=problem, b=budget: accepted(model, p, transformers_map(model, b))),
            "accelerate": _guarded(lambda p=problem, b=budget: accepted(model, p, accelerate_map(model, b))),
        }
        rows.append(row)
    return rows


def ours_accepted(model: nn.Module, problem: Problem) -> Placement:
    """Our map, held to the same check."""
    placement = solve(problem, limit_seconds=LIMIT_SECONDS)
    check_device_map(model, dict(placement.device_map))
    return placement


def accepted(model: nn.Module, problem: Problem, device_map: dict[str, DeviceName]) -> Placement:
    """The cost of a map that accelerate dispatches; its ValueError where it does not."""
    check_device_map(model, device_map)
    return evaluate(problem, device_map)


def transformers_map(model: nn.Module, budget: Mapping[DeviceName, int]) -> dict[str, DeviceName]:
    """What `from_pretrained(device_map="auto", max_memory=budget)` chooses."""
    found: dict[str, DeviceName] = _get_device_map(model, "auto", dict(budget), None)
    return found


def accelerate_map(model: nn.Module, budget: Mapping[DeviceName, int]) -> dict[str, DeviceName]:
    """What `load_checkpoint_and_dispatch(device_map="auto", max_memory=budget)` chooses."""
    classes = list(model._no_split_modules or ())
    balanced = get_balanced_memory(model, dict(budget), no_split_module_classes=classes)
    found: dict[str, DeviceName] = infer_auto_device_map(model, balanced, no_split_module_classes=classes)
    return found


def _guarded(make: Callable[[], Placement]) -> Figures:
    try:
        return figures(make())
    except InputError as problem:
        return Figures(error=str(problem)[:200])
    except Exception as problem:  # theirs raises IndexError and others on some models: that is its result
        return Figures(error=f"{type(problem).__name__}: {problem}"[:200])


def run(entry: CatalogEntry) -> list[Row]:
    """One model, built and compared."""
    values: dict[str, Any] = json.loads(entry.path.read_text(encoding="utf-8"))
    model = build_model(values, dtype=torch.bfloat16)
    try:
        return compare(model, entry)
    finally:
        del model
        gc.collect()


def decoders() -> list[CatalogEntry]:
    """Catalog models that generate text and that transformers has a class for."""
    return [entry for entry in load_index().values() if entry.native and entry.kind in DECODERS]


def table(rows: list[Row]) -> str:
    """The summary for people, in Markdown."""
    models = len({row.model for row in rows})
    proved = sum(bool(row.ours.optimal) for row in rows)
    lines = [
        "# Device maps: ours against transformers' and accelerate's",
        "",
        f"transformers {transformers.__version__}, accelerate {accelerate.__version__}; {models} decoders "
        f"of the catalog in bf16 on {len(BUDGETS)} budgets. Made by `python -m benchmarks.told.device_maps`.",
        "",
        "Judged in this order: weights that are not on a GPU (they are copied there for every token), bytes of them on "
        "disk (both in thousandths of the weights), boundaries between devices, share of the fullest device. A map "
        "that does not fit its budget loses.",
        "",
        "| against | cases | wins | ties | losses | "
        + " | ".join(f"won by {goal}" for goal in GOALS)
        + " | no valid map |",
        "|---|---|---|---|---|" + "---|" * (len(GOALS) + 1),
    ]
    for name in THEIRS:
        outcomes = [row.outcome(name) for row in rows]
        count = Counter(result for result, _ in outcomes)
        by = Counter(goal for result, goal in outcomes if result == "win")
        cells = [name, len(rows), count["win"], count["tie"], count["loss"], *(by[goal] for goal in GOALS)]
        lines.append("| " + " | ".join(map(str, [*cells, by["theirs has no valid map"]])) + " |")
    more = [name for name in THEIRS for row in rows if _offloads_more(row, name)]
    longest = max(rows, key=lambda row: row.seconds)
    lines += [
        "",
        f"- All goals proved optimal in {proved} of {len(rows)} cases; longest search {longest.seconds:.1f} s "
        f"({longest.model}, {longest.budget}), median {sorted(row.seconds for row in rows)[len(rows) // 2]:.2f} s.",
        f"- Cases in which ours offloads more bytes, within that thousandth, and has no fewer boundaries: {len(more)}.",
        "",
        "## By budget",
        "",
        "Medians over the models; bytes as shares of the model's weights, time per token relative to ours "
        f"({MEMORY_RATE / 1e12:g} TB/s GPU memory, {LINK_RATE / 1e9:g} GB/s to the GPU, {CPU_RATE / 1e9:g} GB/s "
        f"host memory, {DISK_RATE / 1e9:g} GB/s disk: assumed, the same for all).",
        "",
        "| budget | offloaded: ours | transformers | accelerate | boundaries: ours | transformers | accelerate "
        "| time: transformers | accelerate | largest |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_budget_line(name, [row for row in rows if row.budget == name]) for name in BUDGETS]
    lines += [
        "",
        "## Losses and cases without a map of ours",
        "",
        "| model | budget | against | why |",
        "|---|---|---|---|",
    ]
    for row in rows:
        if row.ours.error:
            lines.append(f"| {row.model} | {row.budget} | | {row.ours.error} |")
        for name in THEIRS:
            if row.outcome(name)[0] == "loss":
                lines.append(f"| {row.model} | {row.budget} | {name} | {row.outcome(name)[1]} |")
    return "\n".join(lines) + "\n"


def _offloads_more(row: Row, name: str) -> bool:
    mine, other = row.ours, row.theirs[name]
    if not (mine.valid and other.valid):
        return False
    more = (mine.offloaded_bytes or 0) > (other.offloaded_bytes or 0)
    return more and (mine.disk_bytes or 0) >= (other.disk_bytes or 0) and mine.boundaries == other.boundaries


def _budget_line(name: str, rows: list[Row]) -> str:
    def median(values: list[float]) -> float:
        return sorted(values)[len(values) // 2] if values else float("nan")

    def of(row: Row, who: str) -> Figures:
        return row.ours if who == "ours" else row.theirs[who]

    good = [row for row in rows if all(of(row, who).valid for who in ("ours", *THEIRS))]
    cells = [name]
    for who in ("ours", *THEIRS):
        share = median([(of(row, who).offloaded_bytes or 0) / row.weight_bytes for row in good])
        cells.append(f"{100 * share:.1f} %")
    for who in ("ours", *THEIRS):
        cells.append(f"{median([float(of(row, who).boundaries or 0) for row in good]):g}")
    ratios = {
        who: [(of(row, who).seconds_per_token or 0) / (row.ours.seconds_per_token or 1) for row in good]
        for who in THEIRS
    }
    cells += [f"{median(ratios[who]):.2f} x" for who in THEIRS]
    cells.append(f"{max((value for values in ratios.values() for value in values), default=0):.1f} x")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Runs the models named on the command line, or all and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    names = parser.parse_args().models
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for entry in [load_index()[name] for name in names] or decoders():
        try:
            rows += run(entry)
        except InputError as problem:
            print(f"{entry.id}: {problem}", flush=True)
            continue
        last = rows[-len(BUDGETS) :]
        print(
            entry.id, [row.outcome(name) for row in last for name in THEIRS], [row.seconds for row in last], flush=True
        )
    print(table(rows))
    if not names:
        write(rows)


def write(rows: list[Row]) -> None:
    """The committed results."""
    document = {
        "versions": {"transformers": transformers.__version__, "accelerate": accelerate.__version__},
        "rows": [asdict(row) for row in rows],
    }
    lines = ",\n".join(json.dumps(row) for row in document["rows"])
    text = '{\n"versions": ' + json.dumps(document["versions"]) + ',\n"rows": [\n' + lines + "\n]\n}\n"
    (RESULTS / "device_maps.json").write_text(text, encoding="utf-8")
    (RESULTS / "device_maps.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
