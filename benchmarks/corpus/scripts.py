"""The drawn scripts through `plan SCRIPT`, each as a user would call it, against what their text says they must give.

    .venv/bin/python -m benchmarks.corpus.scripts FOLDER LABEL [--draw DRAW] [--plan COMMAND] [--packages FOLDER]
        [--scripts NAME...]

FOLDER holds the checkouts (see `listing`); LABEL (`before`, `after`) names the column that is written. What a script's
user would have installed beside this project's own versions lies under --packages. NAME is a part of names of
`expected_scripts.json`; without one all are run, those too that cannot run on the installed versions: a refusal in one
line is what they must give. --draw held runs the second draw, of `held`, --draw third that of `third`, and so on
to --draw ninth.

right    every value that the text tells is the captured one
wrong    one is not
refused  no capture, with the line that says why

Writes benchmarks/results/corpus_scripts.json (corpus_held_scripts.json, corpus_third_scripts.json,
and so on). Seconds are processor time of `plan` and all that it started, MiB the resident peak of the
largest process among them.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.corpus.files import make

_HERE = Path(__file__).parent
EXPECTED = _HERE / "expected_scripts.json"
RESULTS = _HERE.parent / "results" / "corpus_scripts.json"
HELD = _HERE / "expected_held_scripts.json"
HELD_RESULTS = RESULTS.with_name("corpus_held_scripts.json")
THIRD = _HERE / "expected_third_scripts.json"
THIRD_RESULTS = RESULTS.with_name("corpus_third_scripts.json")
FOURTH = _HERE / "expected_fourth_scripts.json"
FOURTH_RESULTS = RESULTS.with_name("corpus_fourth_scripts.json")
FIFTH = _HERE / "expected_fifth_scripts.json"
FIFTH_RESULTS = RESULTS.with_name("corpus_fifth_scripts.json")
SIXTH = _HERE / "expected_sixth_scripts.json"
SIXTH_RESULTS = RESULTS.with_name("corpus_sixth_scripts.json")
SEVENTH = _HERE / "expected_seventh_scripts.json"
SEVENTH_RESULTS = RESULTS.with_name("corpus_seventh_scripts.json")
EIGHTH = _HERE / "expected_eighth_scripts.json"
EIGHTH_RESULTS = RESULTS.with_name("corpus_eighth_scripts.json")
NINTH = _HERE / "expected_ninth_scripts.json"
NINTH_RESULTS = RESULTS.with_name("corpus_ninth_scripts.json")
_DRAWS = {
    "first": (EXPECTED, RESULTS),
    "held": (HELD, HELD_RESULTS),
    "third": (THIRD, THIRD_RESULTS),
    "fourth": (FOURTH, FOURTH_RESULTS),
    "fifth": (FIFTH, FIFTH_RESULTS),
    "sixth": (SIXTH, SIXTH_RESULTS),
    "seventh": (SEVENTH, SEVENTH_RESULTS),
    "eighth": (EIGHTH, EIGHTH_RESULTS),
    "ninth": (NINTH, NINTH_RESULTS),
}
_GPUS = "1xA100-80GB"
_SHOWN = 240


def captured(document: dict[str, Any]) -> dict[str, Any]:
    """What a plan's document says that the script does, by the names of the expectations."""
    model, workload = document["model"], document["workload"]
    return {
        "parameters": model["parameters"],
        "trained": model["trainable_parameters"],
        "optimizer": workload["optimizer"],
        "precision": workload["precision"],
        "batch": workload["micro_batch"],
        "length": (workload.get("script") or {}).get("seq_len"),
        "accumulation": workload["grad_accum"],
    }


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, list[Any]]:
    """Values that the text tells and the capture has otherwise."""
    wrong = {}
    for name, value in expected.items():
        if value is None or name not in found:
            continue
        # Adam and AdamW allocate alike and have one name here; fused and foreach ones are their own.
        family = "adam" if value in ("Adam", "AdamW") else str(value).lower()
        same = str(found[name]).startswith(family) if name == "optimizer" else found[name] == value
        if not same:
            wrong[name] = [value, found[name]]
    return wrong


def judged(row: dict[str, Any], code: int, out: str, said: str) -> dict[str, Any]:
    """Right, wrong, or refused with what."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "plan: error", "plan:"))] or lines[-1:]
    if code not in (0, 1):
        why = " ".join(errors[-1:])[:_SHOWN] if errors else f"exit code {code}, nothing said"
        return {"outcome": "refused", "code": code, "with": why, "lines": len(errors)}
    found = captured(json.loads(out))
    wrong = differences(row.get("expect", {}), found)
    if row.get("refused"):
        wrong["refused"] = [row["refused"], "captured"]
    return {"outcome": "wrong" if wrong else "right", "found": found, **({"wrong": wrong} if wrong else {})}


def run(row: dict[str, Any], folder: Path, plan: list[str], packages: Path | None) -> dict[str, Any]:
    """One script."""
    repository, path = row["script"].split(":")
    checkout = folder / repository
    script = checkout / path
    if not script.is_file():
        return {"outcome": "missing"}
    make(script.parent, row.get("files", {}))
    _hub(folder / ".hub" / "hub")
    beside = (checkout, checkout / "src", checkout / "applications" / "DeepSpeed-Chat")
    roots = [*(root for root in beside if not shadows(root)), *([packages] if packages else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots)), "HF_HOME": str(folder / ".hub")}
    words = [*plan, script.name, "--gpus", row.get("gpus", _GPUS), "--pin", "--json", "--no-cache"]
    if row.get("arguments"):
        words += ["--", *row["arguments"]]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, cwd=script.parent, env=environment, stdout=out, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said.seek(0)
        texts = [file.read().decode("utf-8", "replace") for file in (out, said)]
    told = texts[1].replace(str(folder), "")
    figures = {"seconds": round(used.ru_utime + used.ru_stime, 1), "mib": used.ru_maxrss // 1024}
    return {**judged(row, process.returncode, texts[0], told), **figures}


def shadows(root: Path) -> bool:
    """Whether a folder of the checkout holds a package that is installed: it runs on the installed version."""
    found = (importlib.util.find_spec(path.parent.name) for path in root.glob("*/__init__.py"))
    return any("site-packages" in str(one.origin) for one in found if one is not None)


def _hub(cache: Path) -> None:
    """Configs that a hub would have given, laid out as its cache: hub.json."""
    for name, config in json.loads((_HERE / "hub.json").read_text()).items():
        home = cache / f"models--{name.replace('/', '--')}"
        commit = "0" * 40
        (home / "refs").mkdir(parents=True, exist_ok=True)
        (home / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        (home / "refs" / "main").write_text(commit)
        (home / "snapshots" / commit / "config.json").write_text(json.dumps(config))


def main(words: list[str]) -> int:
    """Runs them one after another; what is not named keeps its earlier outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("label")
    parser.add_argument("--plan", default=".venv/bin/plan", help="command, with options that every script gets")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--draw", choices=_DRAWS, default="first")
    parser.add_argument("--scripts", nargs="+", default=[])
    asked = parser.parse_args(words)
    plan = [os.path.abspath(word) if os.path.exists(word) else word for word in asked.plan.split()]
    expectations, path = _DRAWS[asked.draw]
    expected = json.loads(expectations.read_text())
    for row in expected:
        if asked.scripts and not any(part in row["script"] for part in asked.scripts):
            continue
        outcome = run(row, asked.folder.resolve(), plan, asked.packages)
        print(
            f"{outcome['outcome']:8} {row['script']}  {outcome.get('with') or outcome.get('wrong') or ''}", flush=True
        )
        results = json.loads(path.read_text()) if path.exists() else {}
        results.setdefault(row["script"], {})[asked.label] = outcome
        path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
