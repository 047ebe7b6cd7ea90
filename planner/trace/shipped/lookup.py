"""The shipped traces of one model, where they stand for what is installed (I/O)."""

from collections.abc import Callable, Collection
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from re import sub

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.shipped.book import Book, DamagedBookError, read_book
from gpu_plan.planner.trace.shipped.source import first_difference, installed_folders
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.lengths import Lengths
from gpu_plan.planner.trace.sizes.settled import settled
from gpu_plan.planner.trace.storage import CorruptTraceError
from gpu_plan.planner.trace.variant import StepVariant

BOOKS = Path(__file__).parent / "data"
ADAPTED = Path(__file__).parent / "adapters"
"""Books of models that are trained through adapters."""
SEARCHED = Path(__file__).parent / "searched"
"""Books of what searches of large models ask for beyond those."""
GENERATED = Path(__file__).parent / "generated"
"""Books of models that generate."""
_KINDS = ("traces", "facts")
_DIGITS = 16
_SPLITS_BELOW = 64
"""Longest sequence for which flash attention may split keys over multiprocessors (flash_api.cpp)."""


def book_name(model: str, digest: str, kind: str = "traces", adapter: str = "") -> str:
    """File of a model whose config has this digest: its traces, or with `facts` what it is alone; under an adapter, by
    its key, the name among those of `ADAPTED`."""
    return f"{_file_word(model)}.{digest[:_DIGITS]}{_word(adapter)}.{kind}"


def _file_word(model: str) -> str:
    return model.replace("/", "--")


def _word(adapter: str) -> str:
    return adapter and "." + sub("[^a-z0-9]+", "-", adapter.lower()).strip("-")


def trace_key(device: DeviceKind, attention: str, variant: StepVariant, points: tuple[int, ...]) -> str | None:
    """Name of a trace in a book; None where the device matters in more than the choice of kernels."""
    depends = variant.fused or variant.compilation or variant.regime.float8 or variant.spread > 1 or variant.part
    if device.kernels is None or depends or variant.seq_len <= _SPLITS_BELOW:
        return None
    return f"{device.kernels} {attention} {variant.key()} {points}"


def shelf_key(
    device: DeviceKind, attention: str, variant: StepVariant, points: tuple[int, ...], *, alike: bool
) -> str | None:
    """As `trace_key` where the model is built `alike` for every device that chooses the same kernels; of whatever asks
    which device it is, that of this device alone. None on a CPU."""
    key = trace_key(device, attention, variant, points) if alike else None
    own = key is None and device.kernels is not None
    return f"{device.key} {attention} {variant.key()} {points}" if own else key


def refusal_key(
    device: DeviceKind, attention: str, variant: StepVariant, micro_batch: int, *, alike: bool
) -> str | None:
    """Name of why a step cannot be traced; None as of `shelf_key`."""
    key = shelf_key(device, attention, variant, (micro_batch,), alike=alike)
    return None if key is None else f"refusal {key}"


ALONE, SEVERAL = (1,), (2, 16, 256)
"""Micro batches of the traces over lengths: a single sample has a structure of its own."""


def lengths_key(
    device: DeviceKind, attention: str, variant: StepVariant, samples: tuple[int, ...], number: int
) -> str | None:
    """Name of a trace over lengths, of which there is one for each span; None as of `trace_key`."""
    key = trace_key(device, attention, variant, samples)
    return None if key is None else f"{key.replace(f'seq={variant.seq_len}', 'seq=*', 1)} {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedTraces:
    """One model's book, opened."""

    book: Book
    path: Path
    note: Callable[[str], None]
    more: "Callable[[], ShippedTraces | None]" = lambda: None
    """Opens what searches ask for beyond it, once something is asked for that it does not have."""
    _lengths: dict[str, Lengths | None] = field(default_factory=dict)
    """Traces over lengths that were read, by their keys."""

    def spec(self, model: str) -> ModelSpec:
        """Parameters and identity, under the name that was asked for."""
        return replace(self.book.spec, id=model)

    def trace(self, key: str | None) -> StepTrace | None:
        """A trace; None where it is not shipped, or cannot be read, which is told."""
        try:
            found = None if key is None else self.book.trace(key)
        except DamagedBookError as problem:
            self.note(damaged(self.path, problem))
            found = None
        more = self.more() if found is None and key is not None else None
        return found if more is None else more.trace(key)

    def refusal(self, key: str | None) -> str | None:
        """Why a step cannot be traced; None where that is not known."""
        found = None if key is None else self.book.refusals.get(key)
        more = self.more() if found is None and key is not None else None
        return found if more is None else more.refusal(key)

    def told(
        self, device: DeviceKind, attention: str, variant: StepVariant, points: tuple[int, ...]
    ) -> StepTrace | None:
        """A trace of another length, as recordings of shorter and longer ones tell it; None where none do."""
        samples = ALONE if points == ALONE else SEVERAL
        if not samples[0] <= points[0] <= points[-1] <= samples[-1]:
            return None
        number = 0
        while (key := lengths_key(device, attention, variant, samples, number)) in self.book.places:
            assert key is not None
            lengths, number = self._read(key), number + 1
            if lengths is not None and lengths.holds(variant.seq_len):
                try:
                    return settled(lengths.at(variant.seq_len), points)
                except NotLinearError:
                    return None
        return None

    def _read(self, key: str) -> Lengths | None:
        if key not in self._lengths:
            from gpu_plan.planner.trace.storage.over_lengths import read_lengths

            try:
                self._lengths[key] = read_lengths(self.book.stored(key))
            except (CorruptTraceError, DamagedBookError) as problem:
                self.note(damaged(self.path, problem))
                self._lengths[key] = None
        return self._lengths[key]

    def assumptions(
        self, left_out: Collection[int] = (), not_shared_out: Collection[str] = (), traced: str = "step"
    ) -> list[str]:
        """What stands behind the traces where it is not installed here, and what was not there: micro batches, and how
        ranks would share a copy, in words."""
        compared = self.book.versions
        absent = [project for project in compared if project not in installed_folders(compared)]
        if not absent:
            return []
        named = ", ".join(f"{project} {version}" for project, version in compared.items())
        lines = [f"the {traced} is a shipped trace, made with {named}; not installed here: {', '.join(absent)}"]
        if left_out:
            tried = ", ".join(map(str, sorted(left_out)))
            lines.append(f"not tried under every strategy, since their traces are not shipped: micro batches {tried}")
        if not_shared_out:
            lines.append(f"not tried, since no trace of it is shipped: {'; '.join(not_shared_out)}")
        return lines


def find_shipped(
    digest: str, note: Callable[[str], None], books: Path | None = None, adapter: str = ""
) -> ShippedTraces | None:
    """The book of a config's digest, under an adapter of that key; None where there is none, or it stands for other
    code, which is told."""
    said = _once(note)
    first = _opened(books or (ADAPTED if adapter else BOOKS), digest, adapter, said)
    more = cache(lambda: None if books else _opened(SEARCHED, digest, adapter, said))
    return more() if first is None else replace(first, more=more)


def _once(note: Callable[[str], None]) -> Callable[[str], None]:
    """Two books of one model are of the same other code."""
    return cache(note)


def _opened(books: Path, digest: str, adapter: str, note: Callable[[str], None]) -> ShippedTraces | None:
    name = f"*.{digest[:_DIGITS]}{_word(adapter)}"
    path = next((path for kind in _KINDS for path in books.glob(f"{name}.{kind}")), None)
    if path is None:
        return None
    try:
        book = read_book(path.read_bytes())
        if not path.name.startswith(f"{_file_word(book.model)}."):
            raise DamagedBookError(f"it is that of {book.model}")
    except (OSError, DamagedBookError) as problem:
        note(damaged(path, problem))
        return None
    other = _difference(tuple(book.files.items()), tuple(book.versions.items()))
    if other is not None:
        note(f"the shipped trace of {book.model} is of other code than {other}: traced anew")
        return None
    return ShippedTraces(book=book, path=path, note=note)


@cache
def _difference(files: tuple[tuple[str, str], ...], made_with: tuple[tuple[str, str], ...]) -> str | None:
    return first_difference(dict(files), dict(made_with), versions())


def damaged(path: Path, problem: Exception) -> str:
    """Names a book that cannot be read, and what follows."""
    return f"the shipped traces {path.name} cannot be read ({problem}): traced anew; install gpu-plan again"
