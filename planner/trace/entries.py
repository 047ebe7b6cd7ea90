"""What is kept in the cache about one model: read and told about where damaged, or made and written (I/O)."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from gpu_plan.planner.cache_dir import DamagedEntryError, cache_dir, entry_name, read_entry, write_entry
from gpu_plan.planner.model.spec import ModelSpec, spec_from
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.storage import CorruptTraceError, dump, load

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries of the cache that `words` name: facts as JSON, traces as arrays."""

    words: tuple[str, ...]
    use_cache: bool
    note: Callable[[str], None]
    """Told about entries that have to be made again."""

    def spec(self, make: Callable[[], ModelSpec]) -> ModelSpec:
        """Parameters and identity of the model, from `make` where they are not kept."""
        path = self._path("spec", "json")
        kept = self._parsed(path, lambda content: spec_from(json.loads(content)))
        if kept is not None:
            return kept
        made = make()
        self._write(path, json.dumps(asdict(made)).encode())
        return made

    def names(self, what: str, make: Callable[[], Iterable[str]]) -> frozenset[str]:
        """A set of names, from `make` where it is not kept."""
        path = self._path(what, "json")
        kept = self._parsed(path, lambda content: frozenset(map(str, json.loads(content))))
        if kept is not None:
            return kept
        made = frozenset(make())
        self._write(path, json.dumps(sorted(made)).encode())
        return made

    def refusal(self, what: str) -> str | None:
        """Why something was refused, where that is kept."""
        return self._parsed(self._path(what, "json"), lambda content: str(json.loads(content)))

    def keep_refusal(self, what: str, why: str) -> None:
        """Writes it."""
        self._write(self._path(what, "json"), json.dumps(why).encode())

    def trace(self, what: str) -> StepTrace | None:
        """A trace that is kept."""
        return self._parsed(self._path(what, "trace"), load)

    def keep_trace(self, what: str, trace: StepTrace) -> None:
        """Writes a trace that was made."""
        self._write(self._path(what, "trace"), dump(trace))

    def _path(self, what: str, suffix: str) -> Path:
        return cache_dir() / "traces" / f"{entry_name(*self.words, what)}.{suffix}"

    def _parsed(self, path: Path, parse: Callable[[bytes], T]) -> T | None:
        if not self.use_cache:
            return None
        try:
            content = read_entry(path)
            return None if content is None else parse(content)
        except (DamagedEntryError, CorruptTraceError, ValueError, TypeError, KeyError):
            self.note(f"the cache entry {path} was unreadable and is made again")
            return None

    def _write(self, path: Path, content: bytes) -> None:
        if self.use_cache:
            write_entry(path, content)


@dataclass(frozen=True, slots=True)
class Told:
    """What a trace was told about values, and the notes made while tracing."""

    host_reads: Sequence[str]
    notes: Sequence[str]

    @classmethod
    def of(cls, trace: StepTrace) -> "Told":
        """Without the trace."""
        return Told(trace.host_reads, trace.notes)


def assumptions_of(traces: Iterable[StepTrace | Told]) -> tuple[list[str], list[str]]:
    """What traces were told about values, and the notes made while tracing, each once."""
    kept = tuple(traces)
    sites = dict.fromkeys(site for trace in kept for site in trace.host_reads)
    notes = dict.fromkeys(note for trace in kept for note in trace.notes)
    return list(sites), list(notes)
