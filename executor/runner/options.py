"""What the launching process asks of the runner: environment variables, read once."""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.runner.parallel.degrees import read_degrees
from gpu_plan.executor.runner.parallel.piped.layout import read_layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The rank's place in the job, and the JSON object of `names.OPTIONS`."""

    run_id: str = ""
    folder: Path | None = None
    """Run folder; None: nothing is written, the script runs all the same."""
    attempt: int = 1
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    """As the launcher says; what really joined is recorded apart."""
    counts_samples: bool = True
    """Whether the batch is this rank's own; one that other ranks compute too is counted by the first of them."""
    host: str = ""
    cpu_ranks: bool = False
    cpu_float8: bool = False
    micro_batch_size: int | None = None
    expected_parameters: int | None = None
    """Elements that the script's model must have; None: not compared."""
    rebatch: bool = False
    """Whether Accelerate's training DataLoader is rebuilt with the planned micro batch."""
    reaccumulate: bool = False
    """Whether the script's TrainingArguments are given the planned accumulation."""
    accumulation_steps: int | None = None
    stop_on_nan: bool = False
    """Whether the rank ends at the first step whose loss is no finite number."""
    checkpointing: str | None = None
    """`full`: switched on where the model can and the engine does not do it itself."""
    record_seconds: float = 0.5
    oom_snapshot: bool = False
    data_loader: Mapping[str, object] = field(default_factory=dict)
    """Fields of accelerate's DataLoaderConfiguration, for an Accelerator that is given none."""


def read_options(environment: Mapping[str, str] | None = None) -> Options:
    """Never raises: an option that makes no sense takes its default, since the script must run all the same."""
    env = os.environ if environment is None else environment
    given = _object(env.get(names.OPTIONS))
    folder = env.get(names.RUN_FOLDER)
    seconds = given.get("record_seconds")
    loader = given.get("data_loader")
    checkpointing = given.get("checkpointing")
    return Options(
        run_id=env.get(names.RUN_ID, ""),
        folder=Path(folder) if folder else None,
        attempt=_count(env.get(names.ATTEMPT)) or 1,
        rank=_count(env.get("RANK")) or 0,
        local_rank=_count(env.get("LOCAL_RANK")) or 0,
        world_size=_count(env.get("WORLD_SIZE")) or 1,
        counts_samples=_counts_samples(env),
        host=socket.gethostname(),
        cpu_ranks=env.get(names.CPU_RANKS) == "1",
        cpu_float8=env.get(names.CPU_FLOAT8) == "1",
        micro_batch_size=_count(env.get(names.MICRO_BATCH_SIZE)),
        expected_parameters=_count(given.get("expected_parameters")),
        rebatch=given.get("rebatch") is True,
        reaccumulate=given.get("reaccumulate") is True,
        accumulation_steps=_count(env.get(names.GRADIENT_ACCUMULATION_STEPS)),
        stop_on_nan=given.get("stop_on_nan") is True,
        checkpointing=checkpointing if isinstance(checkpointing, str) else None,
        record_seconds=float(seconds) if isinstance(seconds, (int, float)) and seconds >= 0 else 0.5,
        oom_snapshot=given.get("oom_snapshot") is True,
        data_loader=loader if isinstance(loader, dict) else {},
    )


def _counts_samples(env: Mapping[str, str]) -> bool:
    rank = _count(env.get("RANK")) or 0
    try:
        degrees, layout = read_degrees(env), read_layout(env)
    except (TypeError, ValueError, KeyError):
        return True
    if layout is not None:
        return layout.place_of(rank) == 0
    return degrees is None or rank % degrees.tp_size == 0


def _object(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None
