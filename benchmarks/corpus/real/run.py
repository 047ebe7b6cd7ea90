"""Drawn scripts on two CPU ranks against their captures.

    .venv/bin/python -m benchmarks.corpus.real.run FOLDER [--packages FOLDER] [--scripts NAME...]

FOLDER holds the checkouts (see benchmarks.corpus.listing). The ranks are forked and joined over gloo by the environment
that torchrun gives; weights are random ones of tiny models under the ids that the scripts load, and data sets,
tokenizers and metrics stand in on both sides as in a capture. Compared are the parameters, those trained, bytes of
optimizer state, accumulation, shapes of the batch, and of the first micro step the bytes above what stood before it:
its peak, after forward, after backward. Writes benchmarks/results/real_ranks.json and .md.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.corpus.files import make
from benchmarks.corpus.real.cases import CASES, Case, lay_tiny
from benchmarks.corpus.real.kept import asked_for, keep, read_words
from benchmarks.corpus.scripts import shadows
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice

RESULTS = Path(__file__).parents[2] / "results" / "real_ranks.json"
ARGUED = Path(__file__).parent / "argued.json"
CPU = PlannedDevice(name="CPU", total_bytes=2**34, capability_major=None)
_LIBRARIES = ("datasets", "accelerate", "transformers", "trl", "peft", "lightning.pytorch")


def prepare(folder: Path, packages: Path | None) -> None:
    """The process that is forked: tiny models laid out, libraries imported, as on a machine without GPUs or network."""
    hub = folder / ".tiny"
    os.environ.update(
        HF_HOME=str(hub), HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1", WANDB_MODE="disabled",
        TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    if packages:
        os.environ["PYTHONPATH"] = str(packages)
        sys.path.append(str(packages))
    import torch

    torch.set_num_threads(1)
    lay_tiny(hub / "hub")
    for name in _LIBRARIES:
        __import__(name)


def place(case: Case, folder: Path) -> tuple[Path, list[Path]]:
    """The script, and the roots from which it imports."""
    repository, _, path = case.script.partition(":")
    if repository == "installed":
        import trl

        return Path(trl.__file__).parents[1] / path, []
    checkout = folder / repository
    roots = [root for root in (checkout, checkout / "src") if not shadows(root)]
    make((checkout / path).parent, dict(case.files))
    return checkout / path, roots


def compared(case: Case, folder: Path) -> dict[str, Any]:
    """One row."""
    from benchmarks.corpus.real import ranks
    from benchmarks.corpus.real.captured import captured

    script, roots = place(case, folder)
    row: dict[str, Any] = {"script": case.script, "arguments": list(case.arguments), "joins": case.joins}
    with tempfile.TemporaryDirectory() as scratch:
        found = captured(_request(case, script, Path(scratch)), Path(scratch), roots)
        real = ranks.run(script, case.arguments, Path(scratch), roots)
    if isinstance(found, str) or isinstance(real, str):
        failed = {"captured": found, "real": real}
        return {**row, **{side: said for side, said in failed.items() if isinstance(said, str)}}
    differs = [_difference(found, rank) for rank in real]
    return {**row, "wrapped": real[0]["wrapped"], "ranks": differs, "figures": found}


def _request(case: Case, script: Path, scratch: Path) -> CaptureRequest:
    working = scratch if "site-packages" in script.parts else script.parent
    return CaptureRequest(
        script=str(script), arguments=case.arguments, working_directory=str(working), device=CPU, world_size=2,
        standin=True, unwalled=True,
    )  # fmt: skip


def _difference(captured: dict[str, Any], real: dict[str, Any]) -> dict[str, list[Any]]:
    """Figures in which a rank is not as captured: captured, real."""
    real = {**real, "inputs": {name: str(shape) for name, shape in real["inputs"].items()}}
    return {name: [value, real[name]] for name, value in captured.items() if real[name] != value}


def as_markdown(rows: list[dict[str, Any]], argued: dict[str, str]) -> str:
    """The rows for people."""
    equal = [row for row in rows if row.get("ranks") == [{}, {}]]
    joined = [row for row in equal if row["joins"]]
    lines = [
        "# Drawn scripts for real, on two CPU ranks",
        "",
        f"`python -m benchmarks.corpus.real.run`: {len(rows)} calls of scripts, {len(equal)} of which have every figure"
        f" equal to their capture on both ranks, to the byte ({len(joined)} of them joined over gloo).",
        "",
        "| script | wrapped in | captured peak, bytes | differs on rank 0 | on rank 1 | why |",
        "|---|---|---:|---|---|---|",
    ]
    for row in rows:
        name = " ".join([row["script"], *(word for word in row["arguments"] if word == "--packing")])
        if "ranks" not in row:
            said = "; ".join(f"{side}: {row[side]}" for side in ("captured", "real") if side in row)[:200]
            cells = ["", "", said.replace("|", "/"), ""]
        else:
            told = [
                "; ".join(f"{key} {a} against {b}" for key, (a, b) in rank.items()) or "nothing"
                for rank in row["ranks"]
            ]
            cells = [row["wrapped"], str(row["figures"]["peak"]), *told]
        lines.append(f"| {name} | {' | '.join(cells)} | {argued.get(name, '')} |")
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Runs them one after another; what is not named keeps its earlier row."""
    asked = read_words(words)
    prepare(asked.folder, asked.packages)
    argued = json.loads(ARGUED.read_text()) if ARGUED.exists() else {}
    for case in CASES:
        if not asked_for(asked.scripts, case.script):
            continue
        row = compared(case, asked.folder)
        print(
            row["script"], row.get("ranks") or {key: row[key] for key in ("captured", "real") if key in row}, flush=True
        )
        keep(row, RESULTS, lambda rows: as_markdown(rows, argued), by=("script", "arguments"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
