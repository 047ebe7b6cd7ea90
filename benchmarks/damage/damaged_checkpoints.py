"""One bit flipped at 200 random places of real checkpoints, and what finding that costs beside the save.

python -m benchmarks.damage.damaged_checkpoints [--flips 200] [--seed 14] [--mebibytes 768] writes
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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.executor.checkpoints import digest
from gpu_plan.executor.checkpoints.find import search
from gpu_plan.executor.checkpoints.manifest import MANIFEST_FILE, files_of, list_files
from tests.execution.launches import ROOT, launch
from tests.support.flips import flip

JSON = RESULTS / "damaged_checkpoints.json"
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
class Spent:
    """Seconds, of the clock and of all processors together: the second tell more on a machine with other work."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One rank's save, medians over ROUNDS."""

    mebibytes: int
    write: Spent
    """The libraries' own writing."""
    flush: Spent
    """Waiting for the disk alone."""
    flush_and_digest: Spent
    read: Spent
    """Reading the checkpoint back and comparing, its pages in memory."""

    @property
    def added(self) -> Spent:
        """What the digest adds to writing and waiting, as a share of them."""
        shares = [
            (getattr(self.flush_and_digest, kind) - getattr(self.flush, kind))
            / (getattr(self.write, kind) + getattr(self.flush, kind))
            for kind in ("wall", "cpu")
        ]
        return Spent(wall=shares[0], cpu=shares[1])


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
            if not fell_back or [each.path for each in looked.skipped] != [newer]:
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

    elements = mebibytes * 2**20 // 12
    model = {f"layer.{n}.weight": torch.randn(elements // 8) for n in range(8)}
    state = {n: {"exp_avg": torch.randn(elements // 8), "exp_avg_sq": torch.rand(elements // 8)} for n in range(8)}
    spent: dict[str, list[Spent]] = {"write": [], "flush": [], "both": [], "read": []}
    with tempfile.TemporaryDirectory(prefix="plan-digest-") as made:
        for number in range(2 * ROUNDS):
            folder = Path(made, f"save-{number}")
            folder.mkdir()
            spent["write"].append(timed(partial(save, folder, model, state)))
            if number % 2:
                spent["flush"].append(timed(partial(flush, folder)))
            else:
                spent["both"].append(timed(partial(list_files, folder, flush=True)))
                spent["read"].append(timed(partial(list_files, folder)))
            for path in folder.iterdir():
                path.unlink()
    write, alone, both, read = (
        Spent(wall=statistics.median(x.wall for x in found), cpu=statistics.median(x.cpu for x in found))
        for found in spent.values()
    )
    return Cost(mebibytes=mebibytes, write=write, flush=alone, flush_and_digest=both, read=read)


def save(folder: Path, model: Mapping[str, Any], state: Mapping[int, Any]) -> None:
    """As accelerate saves a model and its optimizer."""
    import torch
    from safetensors.torch import save_file

    save_file(dict(model), folder / "model.safetensors")
    torch.save({"state": state}, folder / "optimizer.bin")


def flush(folder: Path) -> None:
    """As it was done before there was a digest."""
    for _, path in files_of(folder):
        digest._flush(path)


def timed(call: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Spent(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)


def main() -> None:
    """Runs everything and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200, help="over all strategies together")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--mebibytes", type=int, default=768)
    parser.add_argument("--only-cost", action="store_true", help="keep the flips that are there already")
    args = parser.parse_args()
    kept = json.loads(JSON.read_text())["damaged"] if args.only_cost else []
    rows = [Damaged(**row) for row in kept]
    for number, strategy in enumerate(() if args.only_cost else STRATEGIES):
        share = args.flips // len(STRATEGIES) + (number < args.flips % len(STRATEGIES))
        rows.append(damage(strategy, share, random.Random(f"{args.seed} {strategy}")))
        print(rows[-1], flush=True)
    measured = cost(args.mebibytes)
    print(measured, measured.added, flush=True)
    write(rows, measured, args.seed)


def write(rows: list[Damaged], measured: Cost, seed: int) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    content = {
        "machine": machine,
        "seed": seed,
        "damaged": [asdict(row) for row in rows],
        "cost": asdict(measured),
        "added": asdict(measured.added),
    }
    JSON.write_text(json.dumps(content, indent=1) + "\n")
    load = os.getloadavg()[0]
    found, flips = sum(row.found for row in rows), sum(row.flips for row in rows)
    table = [f"| {r.strategy} | {r.files} | {r.bytes:,} | {r.flips} | {r.found} |" for r in rows]
    lines = [
        "# Damaged checkpoints",
        "",
        f"`python -m benchmarks.damage.damaged_checkpoints --seed {seed}` on {machine}.",
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
        "| | seconds | of processors |",
        "|---|---|---|",
        f"| writing | {measured.write.wall:.2f} | {measured.write.cpu:.2f} |",
        f"| waiting for the disk, as before | {measured.flush.wall:.2f} | {measured.flush.cpu:.2f} |",
        "| waiting for the disk, every byte read beside it"
        f" | {measured.flush_and_digest.wall:.2f} | {measured.flush_and_digest.cpu:.2f} |",
        f"| reading it all again, as resuming does | {measured.read.wall:.2f} | {measured.read.cpu:.2f} |",
        "",
        f"Added to writing and waiting: {measured.added.wall:+.1%} of the time, {measured.added.cpu:+.1%} of the"
        f" processors' seconds. The load of the machine was {load:.0f} on {os.cpu_count()} cores: other work makes its"
        " times those of a queue, and the processors' seconds tell more.",
    ]
    (RESULTS / "damaged_checkpoints.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
