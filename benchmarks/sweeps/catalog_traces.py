"""One training step of every model of the catalog that transformers has a class for, on the H100's kernels.

    .venv/bin/python -m benchmarks.sweeps.catalog_traces [MODEL ...]

writes benchmarks/results/catalog_traces.json and .md (only when run over the whole catalog): which models trace, in
how many events and seconds, what was folded, and why the rest do not. Each model is traced in bf16 with and without
checkpointing and in fp32 under autocast at a micro batch of one, and the plain bf16 step over a range as well.
"""

import argparse
import gc
import json
import platform
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

from benchmarks.places import RESULTS
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.catalog_index import CatalogEntry, load_index
from gpu_plan.planner.trace.events import Kind, StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack

SEQ_LEN = 1024
BF16 = Regime(weights="bfloat16")
AUTOCAST = Regime(weights="float32", autocast="bfloat16", outputs_to_fp32=True)
STEPS = (
    ("bf16", BF16, Checkpointing.NONE, (1, 8)),
    ("bf16, checkpointed", BF16, Checkpointing.FULL, (1,)),
    ("autocast over fp32", AUTOCAST, Checkpointing.NONE, (1,)),
)
"""Name, types, checkpointing, and the micro batches asked for: 8 stands for the range around it."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One variant of a model at one micro batch or range."""

    name: str
    micro_batches: list[int]
    """Sizes between which the trace holds; empty when there is none."""
    events: int = 0
    operators: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Row:
    """One model."""

    model: str
    class_name: str = ""
    kind: str
    parameters: int = 0
    seq_len: int = 0
    build_seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)
    folds: list[dict[str, Any]] = field(default_factory=list)
    host_reads: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    without_gradient: list[str] = field(default_factory=list)
    """Trainable parameters whose gradient never becomes ready: the step does not use them."""
    error: str | None = None

    @property
    def traced(self) -> bool:
        """Whether the plain step is there."""
        return self.error is None and all(step.error is None for step in self.steps if step.name == "bf16")


def survey(entry: CatalogEntry) -> Row:
    """Builds and traces one model; a failure becomes the row's or the step's error."""
    row = Row(model=entry.id, kind=entry.kind)
    start = time.perf_counter()
    try:
        model = build_model(json.loads(entry.path.read_text(encoding="utf-8")))
        spec = spec_of(model, model_id=entry.id)
    except Exception as problem:
        row.error = one_line(problem)
        return row
    row.build_seconds = round(time.perf_counter() - start, 2)
    row.class_name = type(model).__name__
    row.parameters = sum(parameter.numel() for parameter in model.parameters())
    row.seq_len = min(SEQ_LEN, spec.max_positions or SEQ_LEN)
    tracer = Tracer(
        model=model,
        make_batch=_batch,
        profile=CudaProfile(capability=(9, 0)),
        has_sequence=spec.has_sequence,
    )
    for name, regime, checkpointing, sizes in STEPS:
        variant = StepVariant(
            regime=regime,
            checkpointing=checkpointing,
            attention=Attention.SDPA,
            stack=Stack.ACCELERATE,
            seq_len=row.seq_len,
        )
        for size in sizes:
            row.steps.append(_step(tracer, variant, name, size, row))
    row.folds = [
        {"list": fold.list_name, "start": fold.start, "period": fold.period, "units": fold.units}
        for fold in tracer.folds()
    ]
    row.notes = list(dict.fromkeys([*row.notes, *tracer.notes]))
    return row


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def _step(tracer: Tracer, variant: StepVariant, name: str, size: int, row: Row) -> Step:
    step = Step(name=name, micro_batches=[])
    start = time.perf_counter()
    try:
        trace = tracer.trace(variant, size)
    except Exception as problem:
        step.error = one_line(problem)
        return step
    step.seconds = round(time.perf_counter() - start, 2)
    step.micro_batches = list(dict.fromkeys((trace.samples[0], trace.samples[-1])))
    step.events = trace.num_events
    step.operators = len(trace.op_name)
    row.host_reads = list(dict.fromkeys([*row.host_reads, *trace.host_reads]))
    row.notes = list(dict.fromkeys([*row.notes, *trace.notes]))
    row.without_gradient = list(dict.fromkeys([*row.without_gradient, *without_gradient(trace)]))
    return step


def without_gradient(trace: StepTrace) -> list[str]:
    """Trainable parameters for which the step makes no gradient."""
    ready = {int(index) for index in trace.subject[trace.kind == Kind.GRADIENT]}
    return [p.name for index, p in enumerate(trace.parameters) if p.trainable and index not in ready]


def one_line(problem: Exception) -> str:
    """A problem as the command line tells it: our own in its words, others with their type."""
    first = (str(problem).strip().splitlines() or [""])[0][:300]
    return first if isinstance(problem, InputError) else f"{type(problem).__name__}: {first}"


def table(rows: list[Row]) -> str:
    """The summary for people, in Markdown."""
    traced = [row for row in rows if row.traced]
    full = [row for row in traced if all(step.error is None for step in row.steps)]
    lines = [
        "# One training step of every catalog model",
        "",
        f"torch {torch.__version__}, transformers {transformers.__version__}, kernels of an H100, "
        f"sequence length {SEQ_LEN} or the model's positions, one thread. "
        "The machine was shared: seconds are upper bounds. Made by "
        "`python -m benchmarks.sweeps.catalog_traces`.",
        "",
        f"- **{len(traced)} of {len(rows)}** models trace a step; {len(full)} of them in every variant "
        "(bf16, bf16 checkpointed, autocast over fp32).",
        f"- {sum(bool(row.folds) for row in traced)} are folded; "
        f"{sum(bool(row.without_gradient) for row in traced)} have parameters without a gradient; "
        f"the plain step of {sum(len(step.micro_batches) > 1 for row in traced for step in row.steps)} holds "
        "over a range of micro batches around 8.",
        f"- Seconds to trace the plain step at a micro batch of 1: median {_median(traced):.2f}, "
        f"longest {max((row.steps[0].seconds for row in traced), default=0):.2f}.",
        "",
        "| kind | models | traced | every variant |",
        "|---|---|---|---|",
    ]
    for kind in sorted({row.kind for row in rows}):
        of_kind = [row for row in rows if row.kind == kind]
        counts = (sum(row in traced for row in of_kind), sum(row in full for row in of_kind))
        lines.append(f"| {kind} | {len(of_kind)} | {counts[0]} | {counts[1]} |")
    lines += ["", "## What does not trace", "", "| model | step | reason |", "|---|---|---|"]
    lines += [f"| {row.model} | {name} | {reason} |" for row in rows for name, reason in _errors(row)]
    lines += ["", "## Parameters without a gradient", "", "| model | class | parameters |", "|---|---|---|"]
    lines += [
        f"| {row.model} | {row.class_name} | {_shortened(row.without_gradient)} |"
        for row in rows
        if row.without_gradient
    ]
    lines += ["", "## Traced block by block", "", "| model | why |", "|---|---|"]
    lines += [f"| {row.model} | {note} |" for row in rows for note in row.notes if "one by one" in note]
    return "\n".join(lines) + "\n"


def _errors(row: Row) -> list[tuple[str, str]]:
    if row.error is not None:
        return [("all", row.error)]
    found: dict[str, str] = {}
    for step in row.steps:
        if step.error is not None:
            found.setdefault(step.name, step.error)
    return list(found.items())


def _shortened(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _median(rows: list[Row]) -> float:
    seconds = sorted(row.steps[0].seconds for row in rows)
    return seconds[len(seconds) // 2] if seconds else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="catalog ids; default all")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the results file already has")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = {row.model: row for row in _saved()} if options.resume else {}
    entries = [entry for entry in load_index().values() if entry.native]
    rows: list[Row] = []
    for entry in entries:
        if options.models and entry.id not in options.models:
            continue
        row = done.get(entry.id) or survey(entry)
        rows.append(row)
        if entry.id in done:
            continue
        gc.collect()
        seconds = row.build_seconds + sum(step.seconds for step in row.steps)
        print(f"{entry.id}: {'traced' if row.traced else 'not traced'}, {seconds:.1f} s", _errors(row), flush=True)
        if not options.models:
            _save(rows)
    if not options.models:
        _save(rows)


def _save(rows: list[Row]) -> None:
    document = {"torch": torch.__version__, "transformers": transformers.__version__}
    document |= {"python": platform.python_version(), "models": [asdict(row) for row in rows]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "catalog_traces.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "catalog_traces.md").write_text(table(rows), encoding="utf-8")


def _saved() -> list[Row]:
    path = RESULTS / "catalog_traces.json"
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["models"]
    return [Row(**row | {"steps": [Step(**step) for step in row["steps"]]}) for row in rows]


if __name__ == "__main__":
    main()
