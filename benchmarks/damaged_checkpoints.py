"""One bit flipped at 200 random places of real checkpoints, and what finding that costs beside the save.

python -m benchmarks.damaged_checkpoints [--flips 200] [--seed 14] [--mebibytes 768] writes
benchmarks/results/damaged_checkpoints.json and .md. Checkpoints are saved by examples/train.py on two gloo ranks under
DDP, FSDP2, ZeRO-2 and ZeRO-3, twice each: steps 2 and 4. Every byte of the newer one is as likely to be hit as any
other, those of its manifest included; the ranks' own marks, which nobody reads once it is complete, are not. "Found"
is a flip after which the search falls back to step 2 and names step 4 as damaged; the byte is then put back, and in the
end the newer one must be whole again.

The cost is that of one rank which writes a model and Adam's state as accelerate does, with the wait for the disk that
there was before, and then with the digest beside that wait, in turns in one run.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_plan.executor.checkpoints import digest
from gpu_plan.executor.checkpoints.find import search
from gpu_plan.executor.checkpoints.manifest import MANIFEST_FILE, files_of, list_files
from tests.execution.launches import ROOT, launch
from tests.support.flips import flip

RESULTS = Path(__file__).parent / "results"
STRATEGIES = ("ddp", "fsdp", "zero2", "zero3")
ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """All flips in one checkpoint."""

    strategy: str
    files: int
    bytes: int
    flips: int
    found: int
    missed: tuple[str, ...]
    """Where, `FILE:BYTE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one rank's save, medians over ROUNDS."""

    mebibytes: int
    write: float
    """The libraries' own writing."""
    flush: float
    """Waiting for the disk alone."""
    flush_and_digest: float
    least_ratio: float
    ratio: float
    """What the digest adds, to write and flush together: median of the rounds, and the least of them."""
    read: float
    """Reading the checkpoint back and comparing, its pages in memory."""


def damage(strategy: str, flips: int, chance: random.Random) -> Damaged:
    """Saves two checkpoints under a strategy and flips bits of the newer one."""
    with tempfile.TemporaryDirectory(prefix="plan-damaged-") as made:
        run = Path(made)
        words = ("--steps", "4", "--save_steps", "2", "--keep", "9", "--batch_size", "2", "--seq_length", "32")
        ended = launch(run, str(ROOT / "examples" / "train.py"), *words, strategy=strategy)
        if ended.code != 0:
            sys.exit(f"{strategy} did not save: {ended.output}")
        newer = run / "checkpoints" / "step-4"
        files = {**dict(files_of(newer)), MANIFEST_FILE: newer / MANIFEST_FILE}
        sizes = {name: path.stat().st_size for name, path in files.items()}
        missed = []
        for _ in range(flips):
            at, name = chance.randrange(sum(sizes.values())), ""
            for name, size in sizes.items():  # noqa: B007
                if at < size:
                    break
                at -= size
            bit = 1 << chance.randrange(8)
            flip(files[name], at, bit)
            looked = search([run])
            fell_back = looked.newest is not None and looked.newest.path.name == "step-2"
            if not fell_back or [each.path for each in looked.passed_over] != [newer]:
                missed.append(f"{name}:{at}")
            flip(files[name], at, bit)
        whole = search([run]).newest
        if whole is None or whole.path != newer:
            sys.exit(f"{strategy}: the newer checkpoint is not whole after all flips were taken back")
        found = flips - len(missed)
        return Damaged(
            strategy=strategy, files=len(sizes), bytes=sum(sizes.values()), flips=flips, found=found,
            missed=tuple(missed),
        )  # fmt: skip


def cost(mebibytes: int) -> Cost:
    """One save after another, the wait for the disk with and without the digest in turns."""
    import torch
    from safetensors.torch import save_file

    elements = mebibytes * 2**20 // 12
    model = {f"layer.{n}.weight": torch.randn(elements // 8) for n in range(8)}
    state = {n: {"exp_avg": torch.randn(elements // 8), "exp_avg_sq": torch.rand(elements // 8)} for n in range(8)}
    rows: list[tuple[float, float, float]] = []
    reads = []
    with tempfile.TemporaryDirectory(prefix="plan-digest-") as made:
        for number in range(2 * ROUNDS):
            folder = Path(made, f"save-{number}")
            folder.mkdir()
            began = time.perf_counter()
            save_file(model, folder / "model.safetensors")
            torch.save({"state": state}, folder / "optimizer.bin")
            written = time.perf_counter() - began
            waited = seconds(lambda folder=folder: flush([path for _, path in files_of(folder)])) if number % 2 else 0.0  # type: ignore[misc]
            both = 0.0 if number % 2 else seconds(lambda folder=folder: list_files(folder, flush=True))  # type: ignore[misc]
            if not number % 2:
                reads.append(seconds(lambda folder=folder: list_files(folder)))  # type: ignore[misc]
            rows.append((written, waited, both))
            for path in folder.iterdir():
                path.unlink()
    pairs = [
        (with_digest[2] - alone[1]) / (alone[0] + alone[1])
        for with_digest, alone in zip(rows[0::2], rows[1::2], strict=True)
    ]
    return Cost(
        mebibytes=mebibytes,
        write=statistics.median(row[0] for row in rows),
        flush=statistics.median(row[1] for row in rows[1::2]),
        flush_and_digest=statistics.median(row[2] for row in rows[0::2]),
        least_ratio=min(pairs),
        ratio=statistics.median(pairs),
        read=statistics.median(reads),
    )


def flush(paths: Iterable[Path]) -> None:
    """As it was done before there was a digest."""
    for path in paths:
        digest._flush(path)


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    """Runs everything and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200, help="over all strategies together")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--mebibytes", type=int, default=768)
    args = parser.parse_args()
    rows = []
    for number, strategy in enumerate(STRATEGIES):
        share = args.flips // len(STRATEGIES) + (number < args.flips % len(STRATEGIES))
        rows.append(damage(strategy, share, random.Random(f"{args.seed} {strategy}")))
        print(rows[-1], flush=True)
    measured = cost(args.mebibytes)
    print(measured, flush=True)
    write(rows, measured, args.seed)


def write(rows: list[Damaged], measured: Cost, seed: int) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    content = {"machine": machine, "seed": seed, "damaged": [asdict(row) for row in rows], "cost": asdict(measured)}
    (RESULTS / "damaged_checkpoints.json").write_text(json.dumps(content, indent=1) + "\n")
    found, flips = sum(row.found for row in rows), sum(row.flips for row in rows)
    table = [f"| {r.strategy} | {r.files} | {r.bytes:,} | {r.flips} | {r.found} |" for r in rows]
    lines = [
        "# Damaged checkpoints",
        "",
        f"`python -m benchmarks.damaged_checkpoints --seed {seed}` on {machine}.",
        "",
        f"One bit flipped at {flips} places drawn at random: found {found} times, the checkpoint before it taken.",
        "",
        "| saved under (two ranks) | files | bytes | flips | found |",
        "|---|---|---|---|---|",
        *table,
        "",
        "## What the digest costs",
        "",
        f"One rank writes {measured.mebibytes} MiB (weights by safetensors, Adam's state by torch.save) {2 * ROUNDS}"
        " times; medians, the disk waited for with and without the digest in turns.",
        "",
        "| | seconds |",
        "|---|---|",
        f"| writing | {measured.write:.2f} |",
        f"| waiting for the disk, as before | {measured.flush:.2f} |",
        f"| waiting for the disk, every byte read beside it | {measured.flush_and_digest:.2f} |",
        f"| reading it all again, as resuming does | {measured.read:.2f} |",
        "",
        f"Added to writing and waiting: {measured.ratio:+.1%} (median of {ROUNDS} pairs; least"
        f" {measured.least_ratio:+.1%}). The machine has other work: a pair can differ by more than the digest takes.",
    ]
    (RESULTS / "damaged_checkpoints.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
