"""Training scripts captured, against the same scripts run for real on a CPU; scripts that fail; a 7B script.

    .venv/bin/python -m benchmarks.real.captured_scripts [NAME...]

The scripts are those of tests/capture. Seconds are wall time of the whole child, resident memory its peak as the child
reports it. The 7B script is held against a process that runs the script's own imports: in CPU seconds, which other
processes of the machine hardly change, and in wall seconds. With names (of
scripts, of failing ones, `large`) those alone are run again, the rest is kept.

Writes benchmarks/results/captured_scripts.json and .md.
"""

import ast
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest, Outcome
from gpu_plan.planner.trace.storage import load
from tests.capture.test_failing_scripts import FAILING, H100
from tests.capture.test_scripts import CHECKPOINT, CPU, HERE, QUICK, SLOW, Script, _checkpoint
from tests.support.replay_cpu import replayed
from tests.support.script_reference import real_run

RESULT = RESULTS / "captured_scripts.json"
LARGE = HERE / "llama_7b.py"
TIMES_LIMIT = 2.5
"""A capture may take so many times the script's own imports."""
RESIDENT_LIMIT = 2 * 2**30
REPEATS = 3


def timed(request: CaptureRequest) -> tuple[float, Outcome | CaptureError, bytes]:
    """Wall seconds of a capture, and what came of it."""
    began = time.perf_counter()
    try:
        outcome, content = capture(request)
    except CaptureError as error:
        return time.perf_counter() - began, error, b""
    return time.perf_counter() - began, outcome, content


def against_real(case: Script) -> dict[str, Any]:
    """One script, captured and run."""
    row: dict[str, Any] = {"script": str(case), "style": case.loop, "stack": case.stack}
    if not case.peak:
        row["known"] = "oneDNN's convolutions copy operands in backward, which no GPU does"
    if not case.stored:
        row["known"] = "a real 4-bit parameter counts two weights as one element"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = tuple(_checkpoint(folder) if word == CHECKPOINT else word for word in case.arguments)
        request = CaptureRequest(
            script=str(case.path), arguments=words, working_directory=place, device=CPU, seconds=240.0
        )
        seconds, outcome, content = timed(request)
        row["seconds"] = round(seconds, 2)
        if isinstance(outcome, CaptureError):
            return {**row, "captured": False, "message": str(outcome).replace(place, "")}
        assert outcome.facts is not None
        facts = outcome.facts
        figures = replayed(load(content), facts.micro_batch)
        try:
            real = real_run(case.path, words, folder)
        except AssertionError as error:
            return {**row, "captured": True, "message": f"the real run failed: {str(error)[-200:]}"}
    pairs = {
        "parameters": (facts.spec["num_parameters"], real["parameters"]),
        "trained parameters": (facts.spec["trainable_parameters"], real["trainable"]),
        "optimizer state bytes": (sum(made.state_bytes for made in facts.optimizers), real["state_bytes"]),
        "accumulation steps": (facts.accumulation_steps, real["accumulation"]),
        "batch": (
            {name: text[: text.index("]") + 1] for name, text in facts.batch.items()},
            {name: str(shape) for name, shape in real["inputs"].items()},
        ),
        "bytes after forward": (figures.forward_end, real["forward_end"]),
        "bytes after backward": (figures.backward_end, real["backward_end"]),
        "peak bytes": (figures.peak, real["peak"]),
    }
    return {
        **row,
        "captured": True,
        "parameters": real["parameters"],
        "peak_bytes": real["peak"],
        "resident_bytes": facts.resident_bytes,
        "equal": [name for name, (ours, theirs) in pairs.items() if ours == theirs],
        "differs": {name: list(pair) for name, pair in pairs.items() if pair[0] != pair[1]},
    }


def failing(name: str) -> dict[str, Any]:
    """One script that cannot be captured, with the limits of the tests."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / f"{name}.py"
        script.write_text(FAILING[name][0])
        request = CaptureRequest(
            script=str(script), working_directory=place, device=H100, seconds=60.0, resident_bytes=3 << 30,
            processes=24,
        )  # fmt: skip
        if name == "loops":
            request = replace(request, seconds=20.0)
        seconds, outcome, _ = timed(request)
        left = sorted(path.name for path in Path(place).iterdir() if path.name not in ("__pycache__", script.name))
        said = str(outcome).replace(f"{place}/", "") if isinstance(outcome, CaptureError) else "captured"
    return {"script": name, "seconds": round(seconds, 2), "message": said, "files_left": left}


def cpu_seconds() -> float:
    """User and system time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports_alone(script: Path) -> float:
    """Wall seconds of a process that runs the script's own imports and nothing else."""
    tree = ast.parse(script.read_text())
    lines = [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True, cwd=script.parent)
    return time.perf_counter() - began


def large() -> dict[str, Any]:
    """The 7B script: medians of a few runs, imports and captures by turns."""
    captures, imports, resident, facts = [], [], [], None
    used: dict[str, list[float]] = {"imports": [], "captures": []}
    with tempfile.TemporaryDirectory() as place:
        request = CaptureRequest(script=str(LARGE), working_directory=place, device=H100, seconds=240.0)
        for _ in range(REPEATS):
            start = cpu_seconds()
            imports.append(imports_alone(LARGE))
            between = cpu_seconds()
            seconds, outcome, _ = timed(request)
            used["imports"].append(between - start)
            used["captures"].append(cpu_seconds() - between)
            if isinstance(outcome, CaptureError):
                return {"script": LARGE.name, "message": str(outcome)}
            facts = outcome.facts
            assert facts is not None
            captures.append(seconds)
            resident.append(facts.resident_bytes)
    assert facts is not None
    by_cpu = statistics.median(used["captures"]) / statistics.median(used["imports"])
    by_wall = statistics.median(captures) / statistics.median(imports)
    return {
        "script": LARGE.name,
        "parameters": facts.spec["num_parameters"],
        "micro_batch": facts.micro_batch,
        "seq_len": facts.seq_len,
        "precision": facts.precision,
        "accumulation_steps": facts.accumulation_steps,
        "checkpointing": facts.checkpointing,
        "import_seconds": [round(value, 2) for value in imports],
        "capture_seconds": [round(value, 2) for value in captures],
        "import_cpu_seconds": [round(value, 2) for value in used["imports"]],
        "capture_cpu_seconds": [round(value, 2) for value in used["captures"]],
        "times_import_cpu": round(by_cpu, 2),
        "times_import_wall": round(by_wall, 2),
        "load": round(os.getloadavg()[0], 1),
        "times_limit": TIMES_LIMIT,
        "resident_bytes": max(resident),
        "resident_limit": RESIDENT_LIMIT,
    }


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# Captured scripts", "",
        f"`python -m benchmarks.real.captured_scripts` on {document['machine']['cpus']} CPUs, Python"
        f" {document['machine']['python']}, load {document['machine']['load']} at the start.", "",
        "| script | loop | captured | differs from the real run | seconds | resident MiB |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in document["scripts"]:
        how = "yes" if row["captured"] else "no"
        otherwise = row.get("message") or "; ".join(
            f"{name}: {ours} against {theirs}" for name, (ours, theirs) in row["differs"].items()
        )
        if otherwise and row.get("known"):
            otherwise += f" ({row['known']})"
        resident = f"{row['resident_bytes'] / 2**20:.0f}" if row.get("resident_bytes") else ""
        lines.append(
            f"| `{row['script']}` | {row['style']} | {how} | {otherwise or 'nothing'} | {row['seconds']} | {resident} |"
        )
    lines += ["", "| script that fails | what is said | seconds | files left |", "|---|---|---|---|"]
    lines += [
        f"| {row['script']} | `{row['message']}` | {row['seconds']} | {', '.join(row['files_left']) or 'none'} |"
        for row in document["failing"]
    ]
    big = document["large"]
    lines += ["", "## A 7B script", ""]
    if "resident_bytes" in big:
        lines += [
            f"`{big['script']}`, {big['parameters']:,} parameters, {big['resident_bytes'] / 2**20:.0f} MiB resident"
            f" (limit {big['resident_limit'] / 2**20:.0f}), load {big['load']}; limit {big['times_limit']} times.",
            "",
            "| seconds | imports | capture | times, of medians |",
            "|---|---|---|---|",
        ]
        for name, key in (("CPU", "_cpu"), ("wall", "")):
            times = big[f"times_import{key or '_wall'}"]
            lines.append(f"| {name} | {big[f'import{key}_seconds']} | {big[f'capture{key}_seconds']} | {times} |")
    else:
        lines.append(big["message"])
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs everything, or what is named, and writes both files after every part, so that a break loses little."""
    names = sys.argv[1:]
    document: dict[str, Any] = json.loads(RESULT.read_text()) if names else {"scripts": [], "failing": []}
    document["machine"] = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }
    if not names or "large" in names:
        document["large"] = large()
    for case in (*QUICK, *SLOW):
        if not names or case.path.stem in names:
            _put(document["scripts"], against_real(case))
            _write(document)
    for name in FAILING:
        if not names or name in names:
            _put(document["failing"], failing(name))
            _write(document)
    _write(document)


def _put(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """In place of the row of the same script, or at the end."""
    print(row, flush=True)
    at = next((index for index, old in enumerate(rows) if old["script"] == row["script"]), len(rows))
    rows[at : at + 1] = [row]


def _write(document: dict[str, Any]) -> None:
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    RESULT.with_suffix(".md").write_text(table(document))


if __name__ == "__main__":
    main()
