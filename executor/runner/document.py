"""The rank's record as JSON text: the fields of `gpu_plan.executor.records.rank.RankRecord`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from gpu_plan.executor.records.rank import SCHEMA_VERSION
from gpu_plan.executor.runner.figures.ledger import Ledger
from gpu_plan.executor.runner.options import Options


class Recorded(Protocol):
    """What the record is made of: a rank's recorder."""

    options: Options
    actual: dict[str, Any]
    memory: Any
    status: Any
    started: float
    base_resident: int | None
    ledger: Ledger
    error: Any
    exit_code: int | None
    left: str | None
    moments: dict[str, float]
    inference: Any
    checkpoints: list[str]

    @property
    def shapes(self) -> Any:
        """Of the batches with which the model was called."""

    def notes_now(self) -> Sequence[str]:
        """All notes, those of the moment included."""


def document(recorder: Recorded, now: float, pid: int) -> str:
    """The whole record. Rows that no longer change are not encoded again."""
    options = recorder.options
    actual = dict(recorder.actual)
    actual["batch_shapes"] = list(recorder.shapes)
    head = {
        "schema_version": SCHEMA_VERSION,
        "run_id": options.run_id,
        "attempt": options.attempt,
        "rank": options.rank,
        "local_rank": options.local_rank,
        "world_size": options.world_size,
        "pid": pid,
        "host": options.host,
        "device": recorder.memory.device,
        "status": recorder.status,
        "started": recorder.started,
        "updated": now,
        "base_resident_bytes": recorder.base_resident,
        "actual": actual,
        "summary": recorder.ledger.summary(),
        "error": asdict(recorder.error) if recorder.error is not None else None,
        "exit_code": recorder.exit_code,
        "left": recorder.left,
        "moments": recorder.moments,
        "inference": recorder.inference,
        "checkpoints": recorder.checkpoints,
        "notes": list(recorder.notes_now()),
    }
    steps = ",".join(row.text() for row in recorder.ledger.rows())
    return f'{json.dumps(head, allow_nan=False)[:-1]}, "steps": [{steps}]}}\n'
