"""One device's allocations over a whole generation: load, prefill, decode steps.

Of the decode steps the first one (or two) are there as they follow the prefill; the last one, at full context, stands
for those between: its cache is put in place of the earlier one's, since more tokens never take less.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray, Kind, StepTrace
from gpu_plan.planner.trace.generation.passes import Cut, joined, starts_of

LOAD = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """What stands on the device whatever is generated; bytes."""

    weights: tuple[tuple[str, int], ...]
    buffers: tuple[tuple[str, int], ...]
    merged: frozenset[str] = frozenset()
    """Weights that are put together while loading: what they are made of stands beside them until they are done."""
    copies: tuple[tuple[str, int, int], ...] = ()
    """Tied weights that the checkpoint holds a second time: name, bytes, elements. Both are loaded, compared and tied.

    transformers modeling_utils.py: tie_weights, once all is loaded; distributed/sharding_utils.py:
    _tied_params_are_equal calls torch.equal, which makes one bool for each element (ATen native/cuda/Equal.cpp).
    """
    compared: bool = True
    """Whether the two are compared before they are tied; transformers before 5 did not."""
    late_buffers: tuple[tuple[str, int], ...] = ()
    """Buffers that no checkpoint holds where they come with the dispatch, behind the tying (before transformers 5)."""
    workspace: int = 0
    """Of cuBLAS, made by the first product and never freed."""
    warm_up: bool = False
    """Whether loading first takes all weights' bytes as one block and gives it back.

    transformers modeling_utils.py: caching_allocator_warmup, on accelerators; weights are then cut from that segment.
    """

    @property
    def nbytes(self) -> int:
        """Weights and buffers."""
        return sum(size for _, size in (*self.weights, *self.buffers, *self.late_buffers))


@dataclass(slots=True)
class _Events:
    """A run as it is laid out."""

    signs: list[IntArray] = field(default_factory=list)
    tensors: list[IntArray] = field(default_factory=list)
    segments: list[IntArray] = field(default_factory=list)

    def add(self, signs: IntArray, tensors: IntArray, segments: IntArray) -> None:
        self.signs.append(signs)
        self.tensors.append(tensors)
        self.segments.append(segments)

    def one(self, sign: int, tensor: int, segment: int) -> None:
        self.add(np.asarray([sign]), np.asarray([tensor]), np.asarray([segment]))


class GenerationStream:
    """Lays out one device's run."""

    def __init__(self, states: States, cuts: tuple[Cut, ...], prefills: tuple[int, ...] = (1,)) -> None:
        """`prefills`: how many passes at the beginning of each cut take the prompt; none of those that are left out."""
        self._cuts = cuts
        self._prefills = prefills
        self._trace = cuts[0].trace
        for part in cuts[1:]:
            self._trace = joined(self._trace, part.trace)
        self._events = _Events()
        self._own: list[tuple[int, int, str, str]] = []
        self._phases = [Phase.LOAD]
        self._place_states(states)

    def build(self) -> RankStream:
        """The finished stream; its trace is that of all cuts together."""
        offset = 0
        for index, part in enumerate(self._cuts):
            if index:
                self._put_in_place(self._cuts[index - 1], part, offset)
                offset += self._cuts[index - 1].trace.num_tensors
            self._passes(part, offset, self._prefills[index] if index < len(self._prefills) else 0)
        return self._stream()

    # -- what stands ------------------------------------------------------------------------------------------

    def _place_states(self, states: States) -> None:
        if states.warm_up and states.weights:
            whole = self._make(sum(size for _, size in states.weights), Category.TEMPORARY, "allocator warm-up", "")
            self._events.one(1, whole, LOAD)
            self._events.one(-1, whole, LOAD)
        copies = self._copies(states)
        for name, size in sorted(states.weights, key=_natural):
            parts = self._make(size, Category.TEMPORARY, "parts of a weight", name) if name in states.merged else None
            if parts is not None:
                self._events.one(1, parts, LOAD)
            self._events.one(1, self._make(size, Category.PARAMETERS, "weight", name), LOAD)
            if parts is not None:
                self._events.one(-1, parts, LOAD)
        for name, size in states.buffers:
            self._events.one(1, self._make(size, Category.BUFFERS, "buffer", name), LOAD)
        self._tie(states, copies)
        for name, size in states.late_buffers:
            self._events.one(1, self._make(size, Category.BUFFERS, "buffer", name), LOAD)
        for name, per_sample, fixed in self._trace.inputs:
            self._events.one(1, self._make(fixed + per_sample, Category.INPUTS, name, ""), 1)
        if states.workspace:
            self._events.one(1, self._make(states.workspace, Category.TEMPORARY, "cuBLAS workspace", ""), 1)

    def _copies(self, states: States) -> list[int]:
        """The second of each tied pair, as it is loaded."""
        made = [
            self._make(size, Category.TEMPORARY, "stored copy of a tied weight", name)
            for name, size, _ in states.copies
        ]
        for copy in made:
            self._events.one(1, copy, LOAD)
        return made

    def _tie(self, states: States, copies: list[int]) -> None:
        for (name, _, numel), copy in zip(states.copies, copies, strict=True):
            if states.compared:
                equal = self._make(numel, Category.TEMPORARY, "comparison of tied weights", name)
                self._events.one(1, equal, LOAD)
                self._events.one(-1, equal, LOAD)
            self._events.one(-1, copy, LOAD)

    def _make(self, nbytes: int, category: Category, label: str, module: str) -> int:
        self._own.append((CATEGORY_INDEX[category], nbytes, label, module))
        return self._trace.num_tensors + len(self._own) - 1

    # -- passes -----------------------------------------------------------------------------------------------

    def _passes(self, part: Cut, offset: int, prefills: int) -> None:
        trace = part.trace
        events = np.arange(part.first, part.end)
        kinds = trace.kind[events]
        chosen = (kinds == Kind.ALLOC) | (kinds == Kind.FREE)
        starts = starts_of(trace)
        passes = np.searchsorted(starts[(starts >= part.first) & (starts < part.end)], events[chosen], side="right") - 1
        first = len(self._phases)
        self._events.add(
            np.where(kinds[chosen] == Kind.ALLOC, 1, -1), trace.subject[events][chosen] + offset, first + passes
        )
        count = int(passes.max(initial=0)) + 1
        self._phases += [Phase.PREFILL if index < prefills else Phase.DECODE for index in range(count)]

    def _put_in_place(self, before: Cut, part: Cut, offset: int) -> None:
        """What the earlier passes left goes, what the later ones begin with comes."""
        segment = len(self._phases)
        left = _alive_at_end(before)
        self._events.add(np.full(len(left), -1), left + offset, np.full(len(left), segment))
        shift = offset + before.trace.num_tensors
        self._events.add(
            np.ones(len(part.incoming), np.int64), part.incoming + shift, np.full(len(part.incoming), segment)
        )

    def _stream(self) -> RankStream:
        columns = list(zip(*self._own, strict=True)) if self._own else [(), (), (), ()]
        trace = self._trace
        events = self._events
        fixed = np.concatenate([trace.bytes_fixed + trace.bytes_per_sample, np.asarray(columns[1], dtype=np.int64)])
        signs = np.concatenate(events.signs)
        return RankStream(
            trace=trace,
            num_passes=1,
            event_sign=signs,
            event_tensor=np.concatenate(events.tensors),
            event_segment=np.concatenate(events.segments),
            event_in_backward=np.zeros(len(signs), dtype=np.bool_),
            step_segments=(len(self._phases) - 1,),
            fixed=fixed,
            per_sample=np.zeros(len(fixed), dtype=np.int64),
            cuda_stream=np.zeros(len(fixed), dtype=np.int64),
            category=np.concatenate([trace.category, np.asarray(columns[0], dtype=np.int64)]),
            labels=list(columns[2]),
            label_modules=list(columns[3]),
            phases=tuple(self._phases),
        )


def _natural(entry: tuple[str, int]) -> list[tuple[bool, int, str]]:
    """The order in which weights are loaded: core_model_loading.py, dot_natural_key."""
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in entry[0].split(".")]


def _alive_at_end(part: Cut) -> IntArray:
    """Storages alive behind a cut, in the order in which they were made."""
    trace = part.trace
    kinds, subjects = trace.kind[part.first : part.end], trace.subject[part.first : part.end]
    gone = set(subjects[kinds == Kind.FREE].tolist())
    made = [*part.incoming.tolist(), *subjects[kinds == Kind.ALLOC].tolist()]
    return np.asarray([tensor for tensor in made if tensor not in gone], dtype=np.int64)


def cache_at_full_context(part: Cut) -> IntArray:
    """Storages of the cache once the cut's last operator has run: before the caller drops it, after its growth."""
    trace = part.trace
    kinds = trace.kind[part.first : part.end]
    last = int(np.flatnonzero(kinds == Kind.OPERATOR)[-1]) + part.first
    alive = _alive_at_end(Cut(trace=trace, first=part.first, end=last + 1, incoming=part.incoming))
    cached: IntArray = alive[trace.category[alive] == CATEGORY_INDEX[Category.KV_CACHE]]
    return cached


def nbytes_of(trace: StepTrace, tensors: Iterable[int]) -> int:
    """Requested bytes of storages of a generation's trace."""
    chosen = np.asarray(list(tensors), dtype=np.int64)
    return int((trace.bytes_fixed + trace.bytes_per_sample)[chosen].sum())
