"""Run folders written by hand, for tests of what reads them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_plan.executor.records.rank import Actual, RankRecord, StepRecord, StepSummary
from gpu_plan.executor.records.run import Attempt, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.files import save, write_text
from gpu_plan.planner.plan.saved import SavedPlan

MIB = 2**20
STARTED = 1_790_000_000.0
BASE = 20 * MIB


def rank_record(rank: int = 0, world_size: int = 2, **changes: Any) -> RankRecord:
    """A CPU rank that ended well after three steps."""
    steps = tuple(
        StepRecord(step=n, seconds=2.0 if n == 1 else 0.5, micro_batches=1, samples=4, tokens=512, loss=4.0 / n)
        for n in (1, 2, 3)
    )
    summary = StepSummary(
        steps=3,
        seconds_median=0.5,
        seconds_max=0.6,
        samples=12,
        tokens=1536,
        peak_resident_bytes=BASE + (100 + rank) * MIB,
        phases={"forward": BASE + 60 * MIB, "backward": BASE + (100 + rank) * MIB, "optimizer": BASE + 90 * MIB},
        last_loss=4.0 / 3,
    )
    record = RankRecord(
        run_id="one",
        attempt=1,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        pid=1,
        host="here",
        device="cpu",
        status="done",
        started=STARTED,
        updated=STARTED + 10,
        base_resident_bytes=BASE,
        actual=Actual(world_size=world_size, strategy="ddp", parameter_dtypes={"float32": 25 * MIB // 4}),
        steps=steps,
        summary=summary,
        exit_code=0,
    )
    return replace(record, **changes)


def cuda_record(rank: int, peak: int, **changes: Any) -> RankRecord:
    """The same of a GPU rank whose peak allocated was `peak` bytes."""
    base = rank_record(rank)
    summary = replace(
        base.summary,
        peak_allocated_bytes=peak,
        peak_reserved_bytes=peak + MIB,
        peak_device_used_bytes=peak + 600 * MIB,
        peak_resident_bytes=None,
        phases={"forward": peak - MIB, "backward": peak, "optimizer": peak - 2 * MIB},
    )
    return replace(base, device=f"cuda:{rank}", base_resident_bytes=None, summary=summary, **changes)


def run_record(**changes: Any) -> RunRecord:
    """A run of one attempt that ended well."""
    attempt = Attempt(
        number=1,
        command=("accelerate", "launch", "train.py"),
        started=STARTED,
        ended=STARTED + 10,
        exit_code=0,
        cause="success",
        last_step=3,
        strategy={"name": "ddp", "micro_batch_size": 4, "gradient_accumulation_steps": 1},
    )
    record = RunRecord(
        run_id="one",
        status="succeeded",
        script="/home/user/train.py",
        script_arguments=("--lr", "3e-4"),
        working_directory="/home/user",
        world_size=2,
        started=STARTED,
        updated=STARTED + 10,
        ended=STARTED + 10,
        supervisor_pid=os.getpid(),
        exit_code=0,
        attempts=(attempt,),
    )
    return replace(record, **changes)


def write_folder(where: Path, record: RunRecord, plan: SavedPlan | None, *ranks: RankRecord) -> RunFolder:
    """`runs/<id>` below `where`, as a supervisor and its ranks leave it."""
    path = where / "runs" / record.run_id
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.write_run(record)
    if plan is not None:
        save(plan, folder.plan)
    for rank in ranks:
        write_text(path / f"rank-{rank.rank}.json", dump(rank) + "\n")
    return folder
