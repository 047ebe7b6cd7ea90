"""The run folder: `runs/<run id>/` with its files written whole or not at all (I/O)."""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from gpu_plan.executor import names
from gpu_plan.executor.names import (
    ENGINE_FOLDER,
    LOGS_FOLDER,
    PLAN_FILE,
    RUN_FILE,
    RUNS_FOLDER,
    attempt_folder,
    rank_file,
)
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import MAX_BYTES, decode, dump, load_object
from gpu_plan.planner.plan.files import write_text

T = TypeVar("T")


class RunFolder:
    """Paths and records of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def logs(self) -> Path:
        return self.path / LOGS_FOLDER

    @property
    def plan(self) -> Path:
        return self.path / PLAN_FILE

    @property
    def engine(self) -> Path:
        """What an engine was given, where one places this run."""
        return self.path / ENGINE_FOLDER

    def write_run(self, record: RunRecord) -> None:
        """Replaces run.json."""
        write_text(self.path / RUN_FILE, dump(record) + "\n", force=True)

    def read_run(self) -> RunRecord:
        """run.json. UnreachableError where there is none, InputError where it makes no sense."""
        return _read(RunRecord, self.path / RUN_FILE)

    def read_rank(self, rank: int) -> RankRecord:
        """A rank's record. Raises as `read_run` does."""
        return _read(RankRecord, self.path / rank_file(rank))

    def ranks(self) -> Iterator[RankRecord]:
        """Records of the latest attempt, in rank order; unreadable ones are left out."""
        numbers = []
        for path in self.path.glob("rank-*.json"):
            number = names.rank_of(path.stem)
            if number is not None:
                numbers.append(number)
        for number in sorted(numbers):
            try:
                yield self.read_rank(number)
            except (InputError, UnreachableError):
                continue

    def drop_reserves(self) -> None:
        """Frees what ranks that were killed had kept for their last record."""
        for path in self.path.glob(".rank-*.reserve"):
            path.unlink(missing_ok=True)

    def close_attempt(self, attempt: int) -> Path:
        """Moves rank records, launch files and logs of an ended attempt into its own folder; gives that folder."""
        target = self.path / attempt_folder(attempt)
        target.mkdir(exist_ok=True)
        keep = {RUN_FILE, "environment.json"}
        for path in sorted(self.path.iterdir()):
            if path.is_file() and path.name not in keep and not path.name.startswith("."):
                if path.name == PLAN_FILE:
                    write_text(target / PLAN_FILE, path.read_text(), force=True)
                else:
                    os.replace(path, target / path.name)
        if self.logs.is_dir():
            os.replace(self.logs, target / LOGS_FOLDER)
        return target


def create(working_directory: Path) -> RunFolder:
    """A new run folder below `working_directory`. UsageError where it cannot be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = working_directory / RUNS_FOLDER / f"{stamp}-{secrets.token_hex(3)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror or error}; run where you may write") from None
    return RunFolder(path)


def find(text: str, working_directory: Path) -> RunFolder:
    """The run that `text` names: a folder, an id (or the start of one) below runs/, or `latest`.

    UnreachableError in one line where there is none, UsageError where several begin so.
    """
    direct = Path(text)
    if os.path.isfile(direct / RUN_FILE):
        return RunFolder(direct)
    runs = list_runs(working_directory)
    if text == "latest" and runs:
        return runs[-1]
    found = [run for run in runs if run.run_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    where = working_directory / RUNS_FOLDER
    if found:
        raise UsageError(f"{len(found)} runs in {where} begin with {text!r}: write more of the id")
    raise UnreachableError(f"there is no run {text!r} in {where}: `plan runs` lists them")


def list_runs(working_directory: Path) -> list[RunFolder]:
    """Run folders below `working_directory`, oldest first."""
    where = working_directory / RUNS_FOLDER
    if not where.is_dir():
        return []
    return [RunFolder(path) for path in sorted(where.iterdir()) if (path / RUN_FILE).is_file()]


def _read(kind: type[T], path: Path) -> T:
    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreachableError(f"{path} does not exist: the run did not get that far, or it was deleted") from None
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    return decode(kind, load_object(content, str(path)), str(path))
