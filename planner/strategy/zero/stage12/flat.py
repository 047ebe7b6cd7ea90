"""The flat buffer of ZeRO-1 and ZeRO-2: which slice of which parameter each rank owns.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: flatten_dense_tensors_aligned, get_data_parallel_partitions,
get_partition_info, average_tensor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.planner.units import round_up

_ALIGNMENT = 2
"""nccl_start_alignment_factor: elements, times the world size."""


class Slice(NamedTuple):
    """Part of a parameter inside one rank's partition."""

    parameter: int
    rank: int
    numel: int


@dataclass(frozen=True, slots=True)
class FlatGroup:
    """One optimizer group: parameters in order, their elements, and the ranks that share them."""

    parameters: tuple[int, ...]
    numels: tuple[int, ...]
    world_size: int
    numel: int = field(init=False, compare=False)
    """Elements without padding."""
    padded: int = field(init=False, compare=False)
    """Elements of the flat buffer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "numel", sum(self.numels))
        object.__setattr__(self, "padded", round_up(self.numel, _ALIGNMENT * self.world_size))

    @property
    def partition(self) -> int:
        """Elements of each rank's partition; all are equal."""
        return self.padded // self.world_size

    def padding(self, rank: int) -> int:
        """Elements of a rank's partition that belong to no parameter."""
        return self.partition - min(self.partition, max(0, self.numel - rank * self.partition))

    def slices(self) -> Iterator[Slice]:
        """All slices, in the order of the flat buffer."""
        start, size = 0, self.partition
        for parameter, numel in zip(self.parameters, self.numels, strict=True):
            end = start + numel
            while start < end:
                rank = start // size
                stop = min(end, (rank + 1) * size)
                yield Slice(parameter, rank, stop - start)
                start = stop

    def of_rank(self, rank: int) -> Iterator[Slice]:
        """One rank's slices, in the same order."""
        start, first, last = 0, rank * self.partition, (rank + 1) * self.partition
        for parameter, numel in zip(self.parameters, self.numels, strict=True):
            held = min(start + numel, last) - max(start, first)
            if held > 0:
                yield Slice(parameter, rank, held)
            start += numel


@dataclass(frozen=True, slots=True)
class Ownership:
    """One rank's view of all groups."""

    rank: int
    slices: tuple[tuple[Slice, ...], ...]
    """By group."""
    touched: int
    """Elements of all parameters that reach into this rank's partitions, whole."""

    @property
    def parameters(self) -> frozenset[int]:
        """Parameters of which this rank updates a part."""
        return frozenset(part.parameter for group in self.slices for part in group)

    @property
    def largest(self) -> int:
        """Elements of the largest slice."""
        return max((part.numel for group in self.slices for part in group), default=0)


def worst_rank(groups: Sequence[FlatGroup]) -> Ownership:
    """The rank whose partition touches most elements: gradients of touched parameters are kept whole.

    Ties go to the larger slice (its norm is taken in fp64), then to the lowest rank.
    """
    world = groups[0].world_size
    touched, largest = np.zeros(world, dtype=np.int64), np.zeros(world, dtype=np.int64)
    for group in groups:
        _count(group, touched, largest)
    order = np.lexsort((-np.arange(world), largest, touched))
    return ownership(groups, int(order[-1]))


def _count(group: FlatGroup, touched: IntArray, largest: IntArray) -> None:
    """Adds a group to what each rank's partition touches, and to its largest slice: without a step for each slice, of
    which thousands of ranks have thousands."""
    numels = np.asarray(group.numels, dtype=np.int64)
    ends = np.cumsum(numels)
    starts, ends, numels = (ends - numels)[numels > 0], ends[numels > 0], numels[numels > 0]
    if not len(numels):
        return
    size = group.partition
    first, last = starts // size, (ends - 1) // size
    reach = np.zeros((2, len(touched) + 1), dtype=np.int64)
    np.add.at(reach[0], first, numels)
    np.add.at(reach[0], last + 1, -numels)
    # Between its first and last rank a parameter fills partitions whole.
    np.add.at(reach[1], first + 1, (last > first).astype(np.int64))
    np.add.at(reach[1], last, -(last > first).astype(np.int64))
    touched += np.cumsum(reach[0])[:-1]
    np.maximum(largest, np.where(np.cumsum(reach[1])[:-1] > 0, size, 0), out=largest)
    np.maximum.at(largest, first, np.minimum(ends, (first + 1) * size) - starts)
    np.maximum.at(largest, last, ends - np.maximum(starts, last * size))


def ownership(groups: Sequence[FlatGroup], rank: int) -> Ownership:
    """What one rank owns of all groups."""
    slices = tuple(tuple(group.of_rank(rank)) for group in groups)
    numels = [dict(zip(group.parameters, group.numels, strict=True)) for group in groups]
    touched = sum(sizes[part.parameter] for sizes, parts in zip(numels, slices, strict=True) for part in parts)
    return Ownership(rank, slices, touched)


def slices_by_parameter(groups: Sequence[FlatGroup]) -> dict[int, list[Slice]]:
    """Every parameter's slices, in offset order."""
    found: dict[int, list[Slice]] = {}
    for group in groups:
        for part in group.slices():
            found.setdefault(part.parameter, []).append(part)
    return found


def flatten_copies(bucket: Sequence[Slice], limit: int) -> list[int]:
    """Elements of each copy that reducing a bucket makes: neighbours of one rank are merged, one range is a view.

    allreduce_and_scatter closes a batch once it holds more than `limit` elements.
    """
    ranges: list[tuple[int, int]] = []
    for part in bucket:
        if ranges and ranges[-1][0] == part.rank:
            ranges[-1] = (part.rank, ranges[-1][1] + part.numel)
        else:
            ranges.append((part.rank, part.numel))
    copies, count, numel = [], 0, 0
    for _, size in ranges:
        count, numel = count + 1, numel + size
        if numel > limit:
            copies.append(numel if count > 1 else 0)
            count = numel = 0
    if count:
        copies.append(numel if count > 1 else 0)
    return copies
