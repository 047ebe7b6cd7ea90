"""Compares a folder written by benchmarks/measure_gpu.py with what `plan` estimates for the same steps.

    python -m benchmarks.compare_gpu results/h200

writes comparison.json and comparison.md beside the measurement and prints the table, the largest error first. The
estimate is `Evaluator.judge` and the simulated allocator on the recorded device. Versions that differ between the
measurement and this machine are named at the top. Nothing is fitted.
"""

import argparse
import importlib.metadata
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import Case, case_from
from benchmarks.gpu.causes import causes, of_the_cpu, told
from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.memory.stream.moments import Phase

FORMAT = 1
_PHASES = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD, "step": Phase.STEP}

_STANDING = ("parameters", "buffers", "optimizer_state")

Row = dict[str, Any]


def read_rows(folder: Path) -> list[Row]:
    """The rows of a measurement; a last line that was cut off is dropped. InputError, one line, for anything else."""
    path = folder / "rows.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} cannot be read: {type(problem).__name__}; give measure_gpu's --out folder") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # no newline behind it: the run was killed while it wrote
                break
            raise InputError(f"{path}, line {number}: not JSON; measure again") from None
        if not isinstance(row, dict) or "kind" not in row:
            raise InputError(f"{path}, line {number}: not a row of measure_gpu")
        rows.append(row)
    if not rows or rows[0].get("kind") != "run" or rows[0].get("format") != FORMAT:
        found = rows[0].get("format") if rows else "nothing"
        raise InputError(f"{path}: format {found}, this version reads {FORMAT}")
    return rows


def version_differences(environment: Row) -> list[str]:
    """What was measured with another version than the estimate rests on."""
    told = []
    for name in ("torch", "transformers", "accelerate", "peft", "bitsandbytes"):
        theirs = environment.get("versions", {}).get(name)
        try:
            ours: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            ours = None
        if theirs is not None and theirs.partition("+")[0] != (ours or "").partition("+")[0]:
            told.append(f"{name} {theirs} was measured, {ours or 'none'} is traced")
    return told


def _share(line: Row) -> str:
    return "" if line.get("peak_error") is None else f"peak {line['peak_error']:+.2%}; "


def _unsaid(text: str) -> None:
    return None


def compare(rows: Sequence[Row], report: Callable[[str], None] = _unsaid) -> Row:
    """All cases of a measurement beside their estimates, each reported as soon as it is known. InputError when the rows
    make no sense."""
    from benchmarks.gpu.estimates import Estimator, cluster_of

    workers = [row for row in rows if row["kind"] == "worker"]
    if not workers:
        raise InputError("the measurement has no worker row: nothing was measured")
    environment = workers[0]["environment"]
    estimator = Estimator(cluster=cluster_of(environment.get("gpu")))
    compared, others = [], []
    for row in (row for row in rows if row["kind"] == "case"):
        case = _case(row)
        if row["status"] not in ("ok", "oom"):
            others.append({"id": case.id, "status": row["status"], "reason": row.get("reason", "")})
            continue
        try:
            judgement = estimator.judge(case)
            parameters = estimator.spec(case).num_parameters
        except Exception as problem:  # one case that cannot be traced must not cost the table of all others
            reason = str(problem) if isinstance(problem, PlanError) else f"{type(problem).__name__}: {problem}"
            others.append({"id": case.id, "status": "no estimate", "reason": reason.partition("\n")[0][:300]})
            report(f"    {case.id}: no estimate: {others[-1]['reason']}")
            continue
        line = figures(case, row, judgement, estimator.profile(judgement))
        # Four-bit weights are packed: their number of elements says nothing.
        line["causes"] = causes(line, row)
        line["told"] = told(line, row)
        report(f"{len(compared) + 1:3} {case.id}: {_share(line)}{line['told'] or 'no part differs'}")
        line["other_model"] = case.peft != "qlora" and row.get("parameters", parameters) != parameters
        compared.append(line)
    return {
        "environment": environment,
        "of_the_cpu": [] if environment.get("gpu") else of_the_cpu(compared),
        "context": [{"group": w["group"], **w["context"]} for w in workers if "context" in w],
        "differences": version_differences(environment) + _other_models(compared),
        "cases": sorted(compared, key=lambda line: -abs(line.get("peak_error") or 0)),
        "without_comparison": others,
    }


def _other_models(cases: Sequence[Row]) -> list[str]:
    return [f"{line['id']}: the measured model had other parameters" for line in cases if line["other_model"]]


def _case(row: Row) -> Case:
    try:
        return case_from(row["case"])
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(f"a case cannot be read: {problem}") from None


def figures(case: Case, row: Row, judgement: Any, profile: Any) -> Row:
    """Both sides of one case in bytes; errors are relative, positive where the estimate is high."""
    line: Row = {
        "id": case.id,
        "status": row["status"],
        "case": case.as_row(),
        "verdict": judgement.verdict,
        "predicted_peak": profile.peak_allocated_bytes,
        "predicted_at_rest": profile.at_rest_bytes,
        "predicted_reserved": judgement.simulated.reserved_bytes,
        "predicted_standing": {str(name): size for name, size in profile.at_peak.items() if str(name) in _STANDING},
        "predicted_outside": {
            bound: sum(getattr(term, bound) for term in judgement.terms) for bound in ("low", "expected", "high")
        },
    }
    if row["status"] == "oom":
        return line
    line |= {
        "measured_peak": row["peak"].get("allocated"),
        "measured_requested": row["peak"].get("requested"),
        "measured_reserved": row["peak"].get("reserved"),
        "measured_at_rest": row["phases"][-1]["at_rest"].get("allocated"),
        "measured_outside": row["after"].get("outside_allocator"),
        "measured_step_seconds": row["step_seconds"],
        "predicted_step_seconds": judgement.time.step_seconds,
        "measured_parameters": row.get("parameters"),
        "class": row.get("class"),
        "phases": {name: _phase(name, row, profile.phase_peaks[phase]) for name, phase in _PHASES.items()},
    }
    line["peak_error"] = _error(line["predicted_peak"], line["measured_peak"])
    line["at_rest_error"] = _error(line["predicted_at_rest"], line["measured_at_rest"])
    line["reserved_error"] = _error(line["predicted_reserved"], line["measured_reserved"])
    if line["measured_peak"] is not None and line["measured_at_rest"] is not None:
        line["above_rest_error"] = _error(
            line["predicted_peak"] - line["predicted_at_rest"], line["measured_peak"] - line["measured_at_rest"]
        )
    return line


def _phase(name: str, row: Row, predicted: int) -> Row:
    """The highest peak of a phase over all measured iterations and micro steps."""
    every = [
        peaks.get("allocated")
        for iteration in row["phases"]
        for phase, peaks in iteration["peaks"].items()
        if phase.startswith(name)
    ]
    measured = max((value for value in every if value is not None), default=None)
    return {"measured": measured, "predicted": predicted, "error": _error(predicted, measured)}


def _error(predicted: int, measured: int | None) -> float | None:
    return None if not measured else predicted / measured - 1


def summary(cases: Sequence[Row]) -> Row:
    """Median, 95th percentile and worst of every error's size, and verdicts that were wrong."""
    found: Row = {}
    for name in ("peak_error", "above_rest_error", "at_rest_error", "reserved_error"):
        sizes = sorted(abs(line[name]) for line in cases if line.get(name) is not None)
        if sizes:
            high = sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]
            found[name] = {"cases": len(sizes), "median": statistics.median(sizes), "p95": high, "worst": sizes[-1]}
    inside = [_inside(line) for line in cases if line.get("measured_outside") is not None]
    found["outside_in_interval"] = f"{sum(inside)} of {len(inside)}"
    found["false_fits"] = [line["id"] for line in cases if line["status"] == "oom" and line["verdict"] == "fits"]
    found["false_no"] = [line["id"] for line in cases if line["status"] == "ok" and line["verdict"] == "no"]
    return found


def _inside(line: Row) -> bool:
    bounds = line["predicted_outside"]
    return bool(bounds["low"] <= line["measured_outside"] <= bounds["high"])


def markdown(found: Row) -> str:
    """The comparison for people."""
    environment, told = found["environment"], summary(found["cases"])
    gpu = environment.get("gpu", {}).get("name", "CPU")
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version)
    lines = ["# Estimates against measured training steps", "", f"{gpu}; {versions}.", ""]
    lines += [f"- difference: {text}" for text in found["differences"]] or ["- versions are those that are traced"]
    lines += ["", "| error of | cases | median | 95th percentile | worst |", "|---|---|---|---|---|"]
    for name, stat in told.items():
        if isinstance(stat, dict):
            size = " | ".join(f"{stat[key]:.2%}" for key in ("median", "p95", "worst"))
            lines.append(f"| {name.removesuffix('_error').replace('_', ' ')} | {stat['cases']} | {size} |")
    lines += ["", f"Outside the allocator, inside the stated interval: {told['outside_in_interval']}."]
    lines += [
        f"False fits: {', '.join(told['false_fits']) or 'none'}. False no: {', '.join(told['false_no']) or 'none'}."
    ]
    lines += ["", "| case | measured MiB | predicted MiB | peak | above rest | forward | backward | step | reserved |"]
    lines += ["|---|---|---|---|---|---|---|---|---|", *(_line(case) for case in found["cases"])]
    lines += ["", "Causes, the largest parts of each difference first:", ""]
    lines += [f"- {case['id']}: {case['told']}" for case in found["cases"] if case.get("told")] or ["- none"]
    if found["of_the_cpu"]:
        lines += ["", "Of the CPU, in a dry run:", "", *(f"- {text}" for text in found["of_the_cpu"])]
    if found["without_comparison"]:
        lines += ["", "Not compared:", ""]
        lines += [f"- {other['id']}: {other['status']}: {other['reason']}" for other in found["without_comparison"]]
    return "\n".join(lines) + "\n"


def _line(case: Row) -> str:
    predicted = f"{case['predicted_peak'] / 2**20:,.2f}"
    if case["status"] == "oom":
        return f"| {case['id']} | out of memory | {predicted} | verdict: {case['verdict']} | | | | | |"
    errors = [case.get("peak_error"), case.get("above_rest_error")]
    errors += [case["phases"][name]["error"] for name in _PHASES] + [case.get("reserved_error")]
    cells = " | ".join("" if error is None else f"{error:+.2%}" for error in errors)
    measured = "" if case["measured_peak"] is None else f"{case['measured_peak'] / 2**20:,.2f}"
    return f"| {case['id']} | {measured} | {predicted} | {cells} |"


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Entry point: 0 done, 2 when the folder cannot be used."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what measure_gpu's --out named")
    parser.add_argument("-o", "--out", type=Path, help="folder for comparison.json and .md (the same)")
    arguments = parser.parse_args(words)
    try:
        found = compare(read_rows(arguments.folder), _to_stderr)
    except InputError as problem:
        print(f"compare_gpu: error: {problem}", file=sys.stderr)
        return 2
    out = arguments.out or arguments.folder
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(found)
    (out / "comparison.json").write_text(json.dumps({**found, "summary": summary(found["cases"])}, indent=1) + "\n")
    (out / "comparison.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
