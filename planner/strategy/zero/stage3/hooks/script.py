"""What a rank of ZeRO-3 does at its modules' hooks, one act after the other, as values.

What is gathered, prefetched, released and reduced, and what of it waits for the device, follows from the trace, the
sizes and the limits. Where the optimizer's state or the partitions lie changes none of it: ranks that differ in that
alone carry out one script. How many ranks there are says how far parameters are padded, in each act's own number.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from gpu_plan.planner.memory.lead.log import Log
from gpu_plan.planner.memory.lead.until import until
from gpu_plan.planner.memory.schedule import DeviceStreams
from gpu_plan.planner.plain.among import among
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import nbytes_each
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions
from gpu_plan.planner.strategy.zero.stage3.queues import REDUCES
from gpu_plan.planner.strategy.zero.stage3.storage import COALESCED, GATHERED, PERSISTENT, Gather, Gathered
from gpu_plan.planner.trace.events import IntArray

LABELS = (GATHERED, COALESCED, PERSISTENT)
"""Of what is taken, by number."""
AT_ONCE = -1
"""No wait: what is freed can be taken again at once."""


Operators = Callable[[int, int], tuple[int, int]]
"""Operators that issue something of so many parameters among so many ranks, fewest and most."""
Act = tuple[int, int, int, int]
"""When, what, a number and one more, as what it is says; plain, for a rank has thousands. When is a number among the
places that a walk comes by, until a trace says which points they are (`placed`)."""
TAKE = 0
"""Allocates elements, under the label of the second number: the next ticket."""
FETCH = 1
"""This rank's partition on the device, of so many elements that all ranks have together: the next ticket."""
GIVE = 2
"""Frees a ticket, waiting as the second number says."""
GRADIENT = 3
"""Frees the traced gradient of a parameter, waiting as the second number says."""
REDUCE = 4
"""A bucket begins to be reduced, copied into so many elements first; 0 where it is reduced in place."""
PARTITION = 5
"""This rank's part of a parameter's gradient is kept."""
REDUCED = 6
"""The bucket is done with."""


class _Groups(NamedTuple):
    """Groups of parameters, each once, though most come again in every pass."""

    of: IntArray
    """Parameters of all groups."""
    starts: IntArray
    """Where those of each begin [groups]."""
    counts: IntArray
    """How many they are [groups]."""
    which: IntArray
    """The group of each place at which one comes."""

    @staticmethod
    def of_each(groups: "Sequence[tuple[int, ...]]") -> "_Groups":
        """Those of so many places."""
        known: dict[tuple[int, ...], int] = {}
        which = np.asarray([known.setdefault(group, len(known)) for group in groups], dtype=np.int64)
        of = np.fromiter(chain.from_iterable(known), dtype=np.int64)
        counts = np.fromiter(map(len, known), dtype=np.int64, count=len(known))
        return _Groups(of, np.cumsum(counts) - counts, counts, which)

    def sums(self, elements: IntArray) -> IntArray:
        """Of what each parameter has [parameters], what each group has."""
        found: IntArray = np.add.reduceat(elements[self.of], self.starts) if len(self.of) else np.zeros(0, np.int64)
        return found


class _Sent(NamedTuple):
    """What the streams send, each kind of call once, in the order in which they first come."""

    groups: _Groups
    """Their parameters."""
    which: IntArray
    """Which of them each call is."""
    calls: list[tuple[str, Operators, int]]
    """What it is, how its operators follow, and from how many parameters."""


@dataclass
class Script:
    """Every act of a run of two iterations."""

    acts: list[Act] = field(default_factory=list)
    sections: list[range] = field(default_factory=list)
    """Acts of each pass, of what precedes a step and of what follows it, in the order in which they come."""
    streams: DeviceStreams = field(default_factory=DeviceStreams)
    """What was queued on the device's streams; its moments count acts."""
    until: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """Of frees that wait, the number of the moment from which on the block serves again [schedules, frees]. Known of
    what is `placed`."""
    sized: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """Acts whose elements follow from how far parameters are padded, and these parameters."""
    sent: list[tuple[str, Operators, tuple[int, ...]]] = field(default_factory=list)
    """What the streams send: its kind, how its operators follow from its parameters and the ranks, the parameters."""
    gathered: Counter[Gathered] = field(default_factory=Counter)
    """Since the last forward began."""
    bucketed: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """The same of reduce-scatters, by the parameters whose gradients they are."""
    gathers: Counter[Gather] = field(default_factory=Counter)
    """What was gathered, among so many ranks."""
    reduced: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The same of reduce-scatters, by their elements and gradients."""

    def placed(self, points: IntArray, launches: IntArray) -> "Script":
        """Along a trace whose places these points are; `launches` are the kernels launched up to each event of it."""
        other, moments = copy(self), self.moments.copy()
        moments[:, 0] = points[moments[:, 0]]
        other.__dict__.update(at=points[self.columns[:, 0]], moments=moments)
        other.streams = copy(self.streams)
        other.streams.log = log = replace(self.streams.log, launches=array("q", launches.tobytes()))
        other.until = until(log)
        return other

    def among(self, parts: Partitions, ranks: int, dtype: str) -> "Script":
        """As so many ranks carry it out, whose parts these are."""
        _ = self.tickets, self._sent, self._calls, self._groups, self._sized_acts  # the same of each, worked out once
        other, padded = copy(self), np.asarray(parts.share, dtype=np.int64) * ranks
        stored = padded * np.asarray(parts.scale, dtype=np.int64) if parts.scale else padded
        other.__dict__["number"] = self._sized(padded, stored, np.asarray(parts.numel, dtype=np.int64))
        other.streams = copy(self.streams)
        other.streams.log = self._log(padded, stored, ranks, dtype)
        calls: Counter[tuple[int, bool, bool, int]] = Counter()
        elements = self._calls.sums(stored)[self._calls.which].tolist()
        for (call, times), whole in zip(self.gathered.items(), elements, strict=True):
            calls[whole, call.backward, call.ahead, len(call.parameters)] += times
        other.gathers = Counter({Gather(*call): times for call, times in calls.items()})
        reduces = padded.tolist().__getitem__
        other.reduced = Counter()
        for bucket, times in self.bucketed.items():
            other.reduced[sum(map(reduces, bucket)), len(bucket)] += times
        return other

    def _log(self, padded: IntArray, stored: IntArray, ranks: int, dtype: str) -> Log:
        """The streams' log with what they send among so many ranks; arguments as of `_sized`."""
        if not self.sent:
            return replace(self.streams.log, sent=array("q"), messages={})
        groups, which, calls = self._sent
        of_each = zip(
            *(nbytes_each(groups.sums(one), dtype)[groups.which].tolist() for one in (padded, stored)), strict=True
        )
        messages: dict[tuple[str, int], int] = {}
        rows = []
        for (kind, operators, parameters), (reduced, whole) in zip(calls, of_each, strict=True):
            message = messages.setdefault((kind, reduced if kind == REDUCES else whole), len(messages))
            rows.append((message, *operators(parameters, ranks)))
        sent = np.asarray(rows, dtype=np.int64)[which]
        return replace(self.streams.log, sent=array("q", sent.tobytes()), messages=messages)

    @cached_property
    def _sent(self) -> "_Sent":
        """What the streams send."""
        known: dict[tuple[str, Operators, tuple[int, ...]], int] = {}
        which = np.asarray([known.setdefault(call, len(known)) for call in self.sent], dtype=np.int64)
        groups = _Groups.of_each([parameters for _, _, parameters in known])
        return _Sent(groups, which, [(kind, operators, len(parameters)) for kind, operators, parameters in known])

    @cached_property
    def _calls(self) -> _Groups:
        """What is gathered, call by call."""
        return _Groups.of_each([call.parameters for call in self.gathered])

    @cached_property
    def _groups(self) -> _Groups:
        """Those whose elements acts are about."""
        return _Groups.of_each([parameters for _, parameters in self.sized])

    @cached_property
    def _sized_acts(self) -> IntArray:
        """These acts, in the order of `sized`."""
        return np.asarray([act for act, _ in self.sized], dtype=np.int64)

    def _sized(self, padded: IntArray, stored: IntArray, numel: IntArray) -> IntArray:
        """Each act's number, of parameters padded to so many elements, which take so many of the engine's type."""
        number = self.columns[:, 2].copy()
        if self.sized:
            groups = self._groups
            reduced = groups.sums(padded)
            # One evenly divided gradient is reduced in place.
            in_place = (groups.counts == 1) & (reduced == groups.sums(numel))
            copied, whole = np.where(in_place, 0, reduced)[groups.which], groups.sums(stored)[groups.which]
            at = self._sized_acts
            number[at] = np.where(self.columns[at, 1] == REDUCE, copied, whole)
        return number

    @cached_property
    def columns(self) -> IntArray:
        """The acts as [acts, 4], as they were walked by: the same for all who carry them out."""
        return np.asarray(self.acts, dtype=np.int64).reshape(-1, 4)

    @cached_property
    def at(self) -> IntArray:
        """When each is: a point, once they are `placed`."""
        return self.columns[:, 0]

    @cached_property
    def number(self) -> IntArray:
        """The number of each, among so many ranks."""
        return self.columns[:, 2]

    @cached_property
    def tickets(self) -> int:
        """How many there are."""
        return int(among(self.columns[:, 1], (TAKE, FETCH)).sum())

    @cached_property
    def moments(self) -> IntArray:
        """Those of the streams [moments, 2]."""
        return np.asarray(self.streams.moments, dtype=np.int64).reshape(-1, 2)

    def end(self) -> None:
        """From now on in columns alone: what a walk noted one by one is several times as large."""
        _ = self.columns, self.moments
        self.acts.clear()
        self.streams.moments.clear()

    def close(self) -> None:
        """Ends a section."""
        start = self.sections[-1].stop if self.sections else 0
        self.sections.append(range(start, len(self.acts)))
