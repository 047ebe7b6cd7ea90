"""What real ranks ask of the CPU allocator: one launch of processes for a whole list of cases (I/O)."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cpu_reference import Change, Reference
from tests.support.ranks.case import RankCase
from tests.support.ranks.cases import SAMPLE
from tests.support.ranks.flat_cases import FLAT, LORA
from tests.support.ranks.zero_cases import SAMPLE as ZERO

ROOT = Path(__file__).parents[2]
QUICK = (*SAMPLE, *FLAT, *LORA, *ZERO)
"""What `make test` runs on two ranks; DeepSpeed, which changes torch where it is imported, comes last."""
SECONDS_PER_CASE, SECONDS_TO_START = 60, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRun:
    """One case on all ranks."""

    case: RankCase
    references: tuple[Reference, ...]
    """What each rank's allocator saw; empty when a rank failed."""
    error: str = ""
    """Traceback of the first rank that failed."""


def run_ranks(cases: Sequence[RankCase], world_size: int) -> list[RankRun]:
    """Runs `cases` on `world_size` gloo processes, one launch for all.

    RuntimeError with the ranks' own words when a process ends before its list.
    """
    with tempfile.TemporaryDirectory(prefix="plan-ranks-") as name:
        _launch(Path(name), cases, world_size)
        return [_load(Path(name), number, case, world_size) for number, case in enumerate(cases)]


def sample_runs(cases: Sequence[RankCase]) -> dict[str, RankRun]:
    """The runs of `cases`, all of them in QUICK, by label.

    All of QUICK is launched once in a test run, by whichever worker asks first; the others wait for it and read.
    """
    folder = Path(os.environ["PLAN_TEST_SCRATCH"], "ranks")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _launch(folder, QUICK, 2)
            (folder / "done").touch()
    return {case.label(): _load(folder, QUICK.index(case), case, 2) for case in cases}


def _launch(folder: Path, cases: Sequence[RankCase], world_size: int) -> None:
    (folder / "meeting").unlink(missing_ok=True)  # of a launch that failed
    (folder / "cases.json").write_text(json.dumps([case.to_dict() for case in cases]))
    seconds = SECONDS_TO_START + SECONDS_PER_CASE * len(cases)
    with (folder / "errors").open("w") as errors:
        ranks = _start("tests.support.ranks.worker", folder, str(world_size), errors)
    try:
        code = ranks.wait(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
    if code:
        raise RuntimeError(f"a rank failed:\n{_said(folder, world_size)}")


def _start(module: str, folder: Path, which: str, errors: Any) -> "subprocess.Popen[bytes]":
    """`python -m module FOLDER which...`, as the first of a process group."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", module, str(folder), *which.split()]
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
    )


def _said(folder: Path, world_size: int) -> str:
    kept = [folder / "errors", *(folder / f"errors-{rank}" for rank in range(world_size))]
    return "\n".join(path.read_text()[-2000:] for path in kept if path.exists())


def launch_ranks(module: str, folder: Path, world_size: int, seconds: int) -> None:
    """Runs `python -m module FOLDER RANK WORLD_SIZE` on every rank; RuntimeError where one fails."""
    ranks = [
        _start(module, folder, f"{rank} {world_size}", (folder / f"errors-{rank}").open("w"))
        for rank in range(world_size)
    ]
    try:
        codes = [rank.wait(timeout=seconds) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}:\n{_said(folder, world_size)}")


def _load(folder: Path, number: int, case: RankCase, world_size: int) -> RankRun:
    ranks = [json.loads((folder / f"case-{number}-rank-{rank}.json").read_text()) for rank in range(world_size)]
    error = next((values["error"] for values in ranks if "error" in values), "")
    if error:
        return RankRun(case=case, references=(), error=error)
    return RankRun(case=case, references=tuple(_reference(values) for values in ranks))


def _reference(values: dict[str, Any]) -> Reference:
    paths = [tuple(entry) for entry in values["paths"]]
    changes = tuple(Change(nbytes=n, path=paths[p], pointer=pointer) for n, p, pointer in values["changes"])
    return Reference(changes=changes, marks=values["marks"])
