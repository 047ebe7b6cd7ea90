"""Estimates against published measurements.

    .venv/bin/python -m benchmarks.accuracy [--truth FILE]... [--json] [--kind KIND] [--configs FOLDER] [--rows FILE]
                                        [--keep FILE]

FILE is a JSON list of rows, or an object with `rows` and `died`; FILE may be a folder of such files. Rows are about the
memory of training runs, inference, speed or single kernels, which the rows themselves tell. Each is scored or set aside
with its reason. A run with --keep that was stopped goes on where it stopped. Without --truth the files of
benchmarks/data are read and benchmarks/results/accuracy.json and .md written. Exit code 2 where a file is no truth
file.
"""

import argparse
import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.accuracy.figures import Line, Scored, summary
from benchmarks.accuracy.kept import Kept, state_of_code
from benchmarks.accuracy.left_out import device_intervals
from benchmarks.accuracy.page import page
from benchmarks.accuracy.truth import Kind, Truth, read_truth
from gpu_plan.planner.errors import InputError, PlanError

HERE = Path(__file__).parent.parent
PUBLISHED = ("published_memory", "published_inference", "published_components", "published_speed")
DATA = tuple(HERE / "data" / f"{name}.json" for name in PUBLISHED)
_DIED = "fit_oom.json"
_OF_SPEED = ("step_time", "tokens_per_s")
_OF_ROWS = ("id", "kind", "group", "stack", "stack_told_by")
_KEYS = ("peak_allocated", "above_states", "peak_reserved", "device", "false_fits", "false_no", "aside")


def files_of(given: list[Path]) -> list[Path]:
    """The truth files meant: a folder's own, and beside a training file that of the runs that died."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            found += sorted(path.glob("*.json"))
        else:
            beside = path.parent / _DIED
            found += [path, beside] if path.name == "training_memory.json" and beside.is_file() else [path]
    if not found:
        raise InputError(f"{given[0]}: no JSON file in this folder")
    return list(dict.fromkeys(found))


def document(found: Scored) -> dict[str, Any]:
    """What --json prints: figures by group, errors as fractions; `step_time` and `tokens_per_s` where rows tell one.

    `rows` names the stack that ran each scored row, and which of the row's fields tells it; `device_memory` says how
    wide intervals are, and how often right without what a group's own rows say.
    """
    groups = summary(found.lines, found.aside)
    return {
        "groups": {name: _exact(group) for name, group in groups.items()},
        "device_memory": device_intervals(found.lines),
        "rows": [{name: line[name] for name in _OF_ROWS} for line in found.lines],
    }


def _exact(group: Line) -> Line:
    return {key: group[key] for key in (*_KEYS, *(key for key in _OF_SPEED if key in group))}


def details(found: Scored) -> dict[str, Any]:
    """Everything: figures by group, every line, every row set aside."""
    groups = summary(found.lines, found.aside)
    return {"groups": groups, "rows": list(found.lines), "set_aside": [asdict(row) for row in found.aside]}


def main(arguments: list[str] | None = None) -> int:
    """Prints the figures; writes the committed results where no file was given."""
    given = _parser().parse_args(arguments)
    try:
        paths = files_of(given.truth) if given.truth else list(DATA)
        truths = [read_truth(path, given.kind) for path in paths]
        if given.configs is not None and not given.configs.is_dir():
            raise InputError(f"--configs {given.configs}: no folder of configs")
        kept = None if given.keep is None else Kept(given.keep, state_of_code())
    except PlanError as problem:
        print(f"accuracy: error: {problem}", file=sys.stderr)
        return int(problem.exit_code)
    for truth in truths:
        _note_unknown(truth)
    found = scored_rows(truths, given.configs, kept)
    text = page(found.lines, found.aside)
    if not given.truth:
        (HERE / "results" / "accuracy.json").write_text(json.dumps(details(found), indent=1) + "\n")
        (HERE / "results" / "accuracy.md").write_text(text)
    if given.rows is not None:
        given.rows.write_text(json.dumps(details(found), indent=1) + "\n")
    print(json.dumps(document(found), indent=1) if given.json else text)
    return 0


def scored_rows(
    truths: list[Truth], configs: Path | None, kept: Kept | None = None, *, without: bool = False
) -> Scored:
    """torchao and what registers with torch say at length what they cannot load, and are imported with the planner."""
    for name in ("torchao", "torch.utils._pytree", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from benchmarks.accuracy.models import Models
    from benchmarks.accuracy.score import Scorer, to_stderr

    return Scorer(Models(configs=configs), without=without).score(truths, to_stderr, kept)


def _note_unknown(truth: Truth) -> None:
    if truth.unknown:
        names = ", ".join(name for name, _ in truth.unknown[:12]) + (", ..." if len(truth.unknown) > 12 else "")
        print(f"accuracy: note: {truth.path}: no rule reads {names}; rows are judged by the rest", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", allow_abbrev=False)
    parser.add_argument("--truth", type=Path, action="append", metavar="FILE", help="rows, or a folder; repeatable")
    parser.add_argument("--json", action="store_true", help="print figures by group as JSON")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), help="what rows are about, where they do not tell")
    parser.add_argument("--configs", type=Path, metavar="FOLDER", help="configs of models outside the catalog")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every line and every reason there")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep each row's figures there, and go on from them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
