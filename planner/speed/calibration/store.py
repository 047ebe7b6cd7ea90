"""Where the calibration of this machine is kept, and whether it is of this machine still (I/O)."""

from dataclasses import replace
from pathlib import Path

from gpu_plan.planner.cache_dir import cache_dir
from gpu_plan.planner.errors import InputError, OutputError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.calibration.machine import this_machine
from gpu_plan.planner.speed.calibration.record import MOST_RUNS, Calibration, Run, from_json, to_json
from gpu_plan.planner.whole_file import replace_file

_MOST_BYTES = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept for a cluster: a record that holds, or one line on why the one that lies there does not."""

    record: Calibration | None = None
    refused: str = ""


def path_of(gpu: str) -> Path:
    """Where the record of a kind of device lies."""
    return cache_dir() / "calibrations" / f"{gpu}.json"


def read_record(path: Path) -> Calibration:
    """A record by its file. InputError for what is none."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is no calibration: more than {_MOST_BYTES >> 20} MiB")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} cannot be read: {problem}") from None
    return from_json(text, str(path))


def write_record(path: Path, record: Calibration) -> None:
    """Keeps a record, whole or not at all. OutputError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, to_json(record).encode())
    except OSError as problem:
        raise OutputError(f"{path} cannot be written: {problem}") from None


def kept_for(cluster: Cluster) -> Kept:
    """The calibration that plans for `cluster` rest on, where this machine has the same devices."""
    path = path_of(cluster.gpu.id)
    if not path.is_file():
        return Kept()
    try:
        record = read_record(path)
    except InputError as problem:
        return Kept(refused=str(problem))
    other = record.machine.differences(replace(this_machine(cluster), devices=record.machine.devices))
    if other:
        told = "; ".join(other)
        return Kept(refused=f"{path} is of another machine ({told}): published rates are used; `plan calibrate` anew")
    return Kept(record=record)


def remember(gpu: str, run: Run) -> Calibration | None:
    """Adds a run to the record of this machine's devices; None where there is no record that holds."""
    path = path_of(gpu)
    try:
        record = read_record(path)
    except InputError:
        return None
    grown = replace(record, runs=(*record.runs, run)[-MOST_RUNS:])
    write_record(path, grown)
    return grown
