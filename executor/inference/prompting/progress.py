"""What a run of prompts has done so far: `OUTPUT.progress/`, from which it goes on and the output is made (I/O).

A folder beside the output. `job.json` says whose progress it is; each replica appends to a file of its own, a line for
each prompt, and no line counts before its newline is on the disk. The output itself is written once, whole.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.plan.files import write_text

Result = Mapping[str, object]
"""One prompt's line of the output; `index` is its place."""
_JOB, _LOCK = "job.json", "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where one output's progress lies."""

    output: Path
    count: int
    """Prompts of the whole run."""
    job: Mapping[str, object]
    """What makes results interchangeable: prompts, weights, and how tokens are chosen."""

    @property
    def folder(self) -> Path:
        return self.output.with_name(self.output.name + ".progress")

    @property
    def finished(self) -> bool:
        """Whether the output is there and has a line for each prompt, and no progress is left beside it."""
        return not self.folder.exists() and self.output.is_file() and _lines(self.output) == self.count

    def check(self, *, force: bool, resume: bool) -> None:
        """UsageError where something is there that neither flag speaks of; InputError for another job's progress."""
        if self.output.is_dir():
            raise InputError(f"{self.output} is a folder: name a file in it with --output")
        if not self.output.parent.is_dir():
            raise UnreachableError(f"there is no folder {self.output.parent} for {self.output.name}")
        if force:
            return
        if self.folder.exists():
            done = len(self.read())
            if not resume:
                raise UsageError(
                    f"{self.folder} holds {done} of {self.count} prompts of a run that was cut short: --resume goes on,"
                    " --force begins again"
                )
        elif self.output.exists() and not (resume and self.finished):
            hint = "--resume finds nothing to go on from" if resume else "--resume takes it as done"
            raise UsageError(f"{self.output} is there already: give --force to replace it ({hint})")

    def begin(self, *, force: bool) -> None:
        """Makes the folder, or takes over the one that is there. Errors as `check` raises them."""
        if force:
            self._clear()
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UnreachableError(f"{self.folder} cannot be made: {error.strerror or error}") from None
        with self.locked():
            if (self.folder / _JOB).exists():
                self._compare()
            else:
                write_text(self.folder / _JOB, json.dumps(self.job, sort_keys=True) + "\n", force=True)

    def read(self) -> dict[int, Result]:
        """Results by index, those of every replica; what was torn is not among them."""
        self._compare()
        found: dict[int, Result] = {}
        for path in sorted(self.folder.glob("replica-*.jsonl")):
            for result in _whole_lines(path):
                index = result.get("index")
                if isinstance(index, int) and 0 <= index < self.count:
                    found.setdefault(index, result)
        return found

    def finish(self) -> bool:
        """Writes the output where every prompt is done, and clears the progress. False where some are not."""
        if not self.folder.exists():
            return self.finished
        try:
            with self.locked():
                if not self.folder.exists():
                    return self.finished
                results = self.read()
                if len(results) < self.count:
                    return False
                _write_all(self.output, (results[index] for index in range(self.count)))
                self._clear()
        except FileNotFoundError:
            return self.finished  # another replica was quicker
        return True

    def _clear(self) -> None:
        """The folder goes at once: one half removed would look like progress."""
        gone = self.folder.with_name(f".{self.folder.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder, gone)
        shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time."""
        with (self.folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _compare(self) -> None:
        try:
            there = json.loads((self.folder / _JOB).read_text(encoding="utf-8"))
        except FileNotFoundError:
            there = self.job  # killed between making the folder and writing the file: nothing was done
        except (OSError, ValueError):
            raise InputError(f"{self.folder / _JOB} cannot be read: --force begins again") from None
        differing = [key for key in self.job if not isinstance(there, dict) or there.get(key) != self.job[key]]
        if differing:
            raise InputError(
                f"{self.folder} is the progress of another run ({', '.join(differing)} differ): --force begins again"
            )


class Journal:
    """A replica's own file of results, appended to by one process."""

    def __init__(self, progress: Progress, replica: int) -> None:
        self.path = progress.folder / f"replica-{replica}.jsonl"
        self._file: IO[bytes] = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError(f"another run writes {progress.output}: wait for it, or name another --output") from None
        _cut_torn_end(self._file)

    def append(self, results: Sequence[Result]) -> None:
        """One write for all, on the disk when this returns. UnreachableError where the disk takes no more."""
        text = "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results)
        try:
            self._file.write(text.encode("utf-8"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UnreachableError(f"{self.path} cannot be written: {error.strerror or error}") from None

    def close(self) -> None:
        self._file.close()


def _cut_torn_end(file: IO[bytes]) -> None:
    """Takes away what a killed process left of a line."""
    end = file.seek(0, os.SEEK_END)
    position = end
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        chunk = file.read(position - start)
        at = chunk.rfind(b"\n")
        if at >= 0:
            position = start + at + 1
            break
        position = start
    if position < end:
        file.truncate(position)
        os.fsync(file.fileno())
    file.seek(0, os.SEEK_END)


def _whole_lines(path: Path) -> Iterator[Result]:
    with path.open("rb") as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            try:
                value = json.loads(raw)
            except ValueError:
                continue  # a disk that lost power may hold zeros; the prompt is run again
            if isinstance(value, dict):
                yield value


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))


def _write_all(target: Path, results: Iterator[Result]) -> None:
    """The whole file, or none of it; results are not held in memory together."""
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise UnreachableError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
