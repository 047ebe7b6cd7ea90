"""Gives traces of generations: from memory, from the cache, or by tracing, and only then imports torch (I/O)."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cache_dir import DamagedEntryError, cache_dir, entry_name, read_entry, write_entry
from planner.infer.variant import GenerationVariant
from planner.model.quantization import Scheme
from planner.model.source import ModelSource
from planner.model.spec import ModelSpec, spec_from
from planner.trace.device import DeviceKind
from planner.trace.events import StepTrace
from planner.trace.storage import CorruptTraceError, dump, load

if TYPE_CHECKING:
    from planner.infer.workshop import GenerationWorkshop


@dataclass(slots=True, kw_only=True)
class GenerationProvider:
    """Generations and facts of one model, in one weight type, on one kind of device."""

    source: ModelSource
    device: DeviceKind
    attention: str
    dtype: str
    scheme: Scheme | None = None
    """How weights are quantised, if they are."""
    use_cache: bool = True
    note: Callable[[str], None] = lambda _: None
    """Told about cache entries that had to be made again, and about slow work that starts."""
    _traces: dict[str, StepTrace] = field(default_factory=dict)
    _spec: ModelSpec | None = None
    _merged: frozenset[str] | None = None
    _workshop: "GenerationWorkshop | None" = None

    def spec(self) -> ModelSpec:
        """Parameters and identity of the built model, in the weight type."""
        if self._spec is None:
            path = self._path("spec", "json")
            self._spec = self._read_spec(path)
            if self._spec is None:
                self._spec = self._open_workshop().spec()
                self._write(path, json.dumps(asdict(self._spec)).encode())
        return self._spec

    def merged(self) -> frozenset[str]:
        """Parameters that loading puts together from several of the checkpoint's tensors."""
        if self._merged is None:
            path = self._path("merged", "json")
            content = self._read(path)
            names = json.loads(content) if content is not None else self._open_workshop().merged()
            self._merged = frozenset(map(str, names))
            if content is None:
                self._write(path, json.dumps(sorted(self._merged)).encode())
        return self._merged

    def trace(self, variant: GenerationVariant) -> StepTrace:
        """The generation that `variant` describes."""
        key = variant.key()
        if key not in self._traces:
            path = self._path(key, "npz")
            made = self._read_trace(path)
            if made is None:
                made = self._open_workshop().trace(variant)
                self._write(path, dump(made))
            self._traces[key] = made
        return self._traces[key]

    def told(self) -> tuple[list[str], list[str]]:
        """What the traces used so far were told about values, and the notes made while tracing."""
        sites = dict.fromkeys(site for trace in self._traces.values() for site in trace.host_reads)
        notes = dict.fromkeys(note for trace in self._traces.values() for note in trace.notes)
        return list(sites), list(notes)

    def _read_trace(self, path: Path) -> StepTrace | None:
        content = self._read(path)
        if content is None:
            return None
        try:
            return load(content)
        except CorruptTraceError:
            self.note(f"the cache entry {path} was unreadable and is made again")
            return None

    def _read_spec(self, path: Path) -> ModelSpec | None:
        content = self._read(path)
        if content is None:
            return None
        try:
            return spec_from(json.loads(content))
        except (ValueError, TypeError, KeyError):
            self.note(f"the cache entry {path} was unreadable and is made again")
            return None

    def _open_workshop(self) -> "GenerationWorkshop":
        if self._workshop is None:
            self.note("tracing")
            from planner.infer.workshop import GenerationWorkshop

            self._workshop = GenerationWorkshop(self.source, self.device, self.attention, self.dtype, self.scheme)
        return self._workshop

    def _path(self, what: str, suffix: str) -> Path:
        scheme = "" if self.scheme is None else self.scheme.key()
        name = entry_name("infer", self.source.digest, self.device.key, self.attention, self.dtype, scheme, what)
        return cache_dir() / "traces" / f"{name}.{suffix}"

    def _read(self, path: Path) -> bytes | None:
        if not self.use_cache:
            return None
        try:
            return read_entry(path)
        except DamagedEntryError:
            self.note(f"the cache entry {path} was unreadable and is made again")
            return None

    def _write(self, path: Path, content: bytes) -> None:
        if self.use_cache:
            write_entry(path, content)
