"""What a strategy places in the segments of a run, and which of its frees wait for the device."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NewType

import numpy as np

from gpu_plan.planner.memory.schedule import DeviceStreams, Freed
from gpu_plan.planner.memory.stream.moments import SEGMENT, Point
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray

Handle = NewType("Handle", int)
"""A storage that a strategy placed: its number."""


def _numbers() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Placed:
    """What a strategy placed; columns that numpy reads as they lie."""

    category: "array[int]" = field(default_factory=_numbers)
    fixed: "array[int]" = field(default_factory=_numbers)
    per_sample: dict[int, int] = field(default_factory=dict)
    """Of those few storages that grow with the batch."""
    cuda_stream: dict[int, int] = field(default_factory=dict)
    """Of those that do not come from the default stream's pool."""
    label: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)
    at: "array[int]" = field(default_factory=_numbers)
    what: "array[int]" = field(default_factory=_numbers)
    """Of each event: twice the storage's number, one more where it is allocated. Traced storages count down from -1."""
    waits: dict[int, Freed] = field(default_factory=dict)
    """Of events that free a block on which a stream was recorded."""
    waiting: "Waiting | None" = None
    """The same of all of them at once."""

    def store(self, category: Category, sizes: Sequence[int], labels: Iterable[str], modules: Iterable[str]) -> range:
        """Storages of one category; their numbers."""
        first = len(self.fixed)
        self.fixed.extend(sizes)
        self.category.extend([CATEGORY_INDEX[category]] * len(sizes))
        self.label.extend(labels)
        self.module.extend(modules)
        self.what.extend(range(2 * first + 1, 2 * len(self.fixed), 2))
        return range(first, len(self.fixed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Frees that wait, and for each schedule in which the host runs ahead their moments."""

    events: IntArray
    """By the number of the strategy's own event."""
    freed: IntArray
    """Which of the frees that the streams have queued each is."""
    until: IntArray
    """[schedules, frees]: numbers of moments; NEVER for a block that is not back before the allocator itself waits for
    the device."""
    moments: IntArray
    """[moments, 2]: those of the streams."""

    @staticmethod
    def of(waits: Mapping[int, Freed], streams: DeviceStreams) -> "Waiting":
        """One by one, those of the streams' log found again."""
        freed = np.asarray(list(waits.values()), dtype=np.int64)
        return Waiting(
            events=np.asarray(list(waits), dtype=np.int64),
            freed=freed,
            until=streams.until()[:, freed],
            moments=np.asarray(streams.moments, dtype=np.int64).reshape(-1, 2),
        )


class Placer:
    """What a strategy places in segments, wherever its passes lie."""

    def __init__(self) -> None:
        self._placed = Placed()
        self._last_key: dict[int, int] = {}
        self.steps: list[int] = []
        """Segments of the optimizer steps, by iteration."""

    def at_load(self) -> Point:
        """While the model is built and wrapped."""
        return self._next(0)

    def at_step(self, iteration: int) -> Point:
        """The next moment of an iteration's optimizer step."""
        return self._next(self.steps[iteration])

    def _next(self, segment: int) -> Point:
        last = self._last_key[segment] = self._last_key.get(segment, 0) + 1
        return Point(segment * SEGMENT + last)

    def alloc(
        self, at: Point, nbytes: int, category: Category, label: str, module: str = "", *, cuda_stream: int = 0
    ) -> Handle:
        """Places a storage of `nbytes`; `cuda_stream` names the stream whose pool it comes from, 0 the default one."""
        placed = self._placed
        tensor = len(placed.fixed)
        placed.category.append(CATEGORY_INDEX[category])
        placed.fixed.append(nbytes)
        if cuda_stream:
            placed.cuda_stream[tensor] = cuda_stream
        placed.label.append(label)
        placed.module.append(module)
        placed.at.append(at)
        placed.what.append(2 * tensor + 1)
        return Handle(tensor)

    def alloc_each(
        self, at: Point, sizes: Iterable[int], category: Category, label: str, module: str = ""
    ) -> tuple[Handle, ...]:
        """Places several storages at once."""
        sizes = list(sizes)
        made = self._placed.store(category, sizes, [label] * len(sizes), [module] * len(sizes))
        self._placed.at.extend([at] * len(made))
        return tuple(map(Handle, made))

    def store_each(
        self, sizes: IntArray, category: Category, labels: Sequence[str], cuda_streams: IntArray
    ) -> IntArray:
        """Storages of one category, each from the pool of its stream, which `place_each` allocates: their numbers."""
        placed = self._placed
        made = np.arange(len(placed.fixed), len(placed.fixed) + len(sizes))
        placed.fixed.frombytes(sizes.astype(np.int64).tobytes())
        placed.category.extend([CATEGORY_INDEX[category]] * len(sizes))
        placed.label.extend(labels)
        placed.module.extend([""] * len(sizes))
        elsewhere = np.flatnonzero(cuda_streams)
        placed.cuda_stream.update(zip(made[elsewhere].tolist(), cuda_streams[elsewhere].tolist(), strict=True))
        return made

    def place_each(self, at: IntArray, what: IntArray) -> None:
        """Events at their points [events]; `what` as in `Placed`."""
        self._placed.at.frombytes(at.astype(np.int64).tobytes())
        self._placed.what.frombytes(what.astype(np.int64).tobytes())

    def free_each(self, at: Point, handles: Iterable[Handle]) -> None:
        """Gives several storages back."""
        placed = self._placed
        before = len(placed.what)
        placed.what.extend([2 * handle for handle in handles])
        placed.at.extend([at] * (len(placed.what) - before))

    def alloc_in_step(self, iteration: int, rows: Iterable[tuple[str, str, int]], category: Category) -> list[Handle]:
        """Places storages in an iteration's optimizer step one after the other, each in a moment of its own: label,
        module and bytes of each."""
        return self.alloc_in(self.steps[iteration], rows, category)

    def alloc_in(self, segment: int, rows: Iterable[tuple[str, str, int]], category: Category) -> list[Handle]:
        """The same in any segment that is no pass; the first one is that of loading."""
        labels, modules, sizes = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
        made = self._placed.store(category, sizes, labels, modules)
        self._placed.at.extend(self._next_moments(segment, len(made)))
        return list(map(Handle, made))

    def free_in_step(self, iteration: int, handles: Sequence[Handle]) -> None:
        """Gives storages back in an iteration's optimizer step, each in a moment of its own."""
        self._placed.at.extend(self._next_moments(self.steps[iteration], len(handles)))
        self._placed.what.extend([2 * handle for handle in handles])

    def _next_moments(self, segment: int, count: int) -> range:
        last = self._last_key.get(segment, 0)
        self._last_key[segment] = last + count
        start = segment * SEGMENT + last + 1
        return range(start, start + count)

    def free(self, at: Point, handle: Handle, waits: Freed | None = None) -> None:
        """The storage goes back to the allocator; `waits`: which cannot hand it out before the device is done."""
        placed = self._placed
        if waits is not None:
            placed.waits[len(placed.at)] = waits
        placed.at.append(at)
        placed.what.append(2 * handle)

    def transient(self, at: Point, nbytes: int, category: Category, label: str, *, cuda_stream: int = 0) -> None:
        """A storage that lives for one call; `cuda_stream` as in `alloc`."""
        self.free(at, self.alloc(at, nbytes, category, label, cuda_stream=cuda_stream))

    def steps_begin(self) -> tuple[tuple[int, int], ...]:
        """Where the next moment of each optimizer step lies: its segment, and the moments that it has so far."""
        return tuple((segment, self._last_key.get(segment, 0)) for segment in self.steps)

    @classmethod
    def beginning(cls, steps: Iterable[tuple[int, int]]) -> "Placer":
        """Nothing placed yet, behind what `steps_begin` says."""
        made = Placer()
        for segment, last in steps:
            made.steps.append(segment)
            made._last_key[segment] = last
        return made

    def splice(self, other: "Placer") -> None:
        """Places all that `other` holds, which began where this one stands, and whose frees wait for nothing."""
        placed, more = self._placed, other._placed
        first = len(placed.fixed)
        placed.category.extend(more.category)
        placed.fixed.extend(more.fixed)
        placed.label.extend(more.label)
        placed.module.extend(more.module)
        placed.at.extend(more.at)
        placed.what.frombytes((column(more.what) + 2 * first).tobytes())
        placed.cuda_stream |= {first + tensor: stream for tensor, stream in more.cuda_stream.items()}
        self._last_key |= other._last_key

    def mark(self) -> tuple[int, int]:
        """How much is placed: storages, and events."""
        return len(self._placed.fixed), len(self._placed.at)

    def since(self, mark: tuple[int, int]) -> "Part":
        """What was placed behind a mark; nothing of it grows with the batch or waits for the device."""
        placed, (storages, events) = self._placed, mark
        return Part(
            first=storages,
            category=placed.category[storages:],
            size=column(placed.fixed[storages:]).copy(),
            label=placed.label[storages:],
            module=placed.module[storages:],
            cuda_stream={own: stream for own, stream in placed.cuda_stream.items() if own >= storages},
            at=placed.at[events:],
            what=column(placed.what[events:]).copy(),
        )

    def again(self, part: "Part", sizes: IntArray) -> int:
        """Places a part whose sizes are numbers of `sizes`; what its storages' handles are further by here."""
        placed = self._placed
        further = len(placed.fixed) - part.first
        placed.category.extend(part.category)
        placed.fixed.frombytes(sizes[part.size].tobytes())
        placed.label.extend(part.label)
        placed.module.extend(part.module)
        placed.cuda_stream |= {own + further: stream for own, stream in part.cuda_stream.items()}
        placed.at.extend(part.at)
        placed.what.frombytes((part.what + np.where(part.what >= 0, 2 * further, 0)).tobytes())
        return further


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Storages and events that are placed again elsewhere, in other sizes."""

    first: int
    """Number of its first storage."""
    category: "array[int]"
    size: IntArray
    """Of each storage: number of its size."""
    label: list[str]
    module: list[str]
    cuda_stream: dict[int, int]
    at: "array[int]"
    what: IntArray


def column(values: "array[int]") -> IntArray:
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)
