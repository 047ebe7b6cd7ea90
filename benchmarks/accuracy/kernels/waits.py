"""How many blocks a call of attention waits for, by samples x heads, out of measured tables; each device left out in
turn.

A call takes as long as its FLOPs at the rate that many heads reach, and a constant beside: blocks of 128 queries for
which multiprocessors stand idle (planner.speed.attention: waited_flops). `blocks_of` tells that constant of one device
and head dimension; `told` by how much rates of few heads are off without it, with the device's own, and with others'.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.catalog import load_gpus

_QUERIES = 128
_LENGTHS = (1024, 2048, 4096, 8192)
_FEW = (4, 64)
"""Samples x heads where a call waits noticeably."""
_MANY = 5
"""Largest numbers of samples x heads, by which the rate of many is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Microseconds of causal attention of one length, by samples x heads."""

    gpu: str
    head_dim: int
    seq_len: int
    micros: Mapping[int, float]

    @property
    def each(self) -> float:
        """Microseconds that one head of one sample takes among many."""
        return median(self.micros[heads] / heads for heads in sorted(self.micros)[-_MANY:])

    @property
    def few(self) -> list[int]:
        return [heads for heads in self.micros if _FEW[0] <= heads <= _FEW[1]]

    @property
    def waves(self) -> float:
        """Heads that a block on every multiprocessor is worth: twice, as it is longer than the mean."""
        multiprocessors = load_gpus()[self.gpu].sm_count
        assert multiprocessors is not None  # a test holds it for every device with a table
        return 2 * multiprocessors * _QUERIES / self.seq_len

    def told(self, heads: int, blocks: float) -> float:
        """Microseconds that so many take, where a call waits for so many blocks."""
        return self.each * (heads + blocks * self.waves)


def blocks_of(calls: Iterable[Calls]) -> float:
    """The median over lengths and numbers of heads."""
    return median((one.micros[heads] / one.each - heads) / one.waves for one in calls if one.few for heads in one.few)


def read(path: Path, gpu: str) -> list[Calls]:
    """A table: batch_size, isl, num_heads, head_dim, microseconds. InputError where it is none."""
    found: dict[tuple[int, int], dict[int, list[float]]] = {}
    try:
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                length, size = int(row["isl"]), int(row["head_dim"])
                if length in _LENGTHS:
                    heads = int(row["batch_size"]) * int(row["num_heads"])
                    found.setdefault((size, length), {}).setdefault(heads, []).append(float(row["microseconds"]))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: no table of attention ({type(problem).__name__})") from problem
    return [
        Calls(gpu=gpu, head_dim=size, seq_len=length, micros={heads: median(of) for heads, of in by.items()})
        for (size, length), by in found.items()
        if any(heads > _FEW[1] for heads in by)
    ]


def told(tables: Mapping[str, list[Calls]]) -> Iterator[tuple[str, int, float, list[float]]]:
    """Device, head dimension, its blocks, and the median absolute errors: without, with its own, with others'."""
    own = {
        (gpu, size): blocks_of(one for one in calls if one.head_dim == size)
        for gpu, calls in tables.items()
        for size in {one.head_dim for one in calls}
    }
    for (gpu, size), blocks in sorted(own.items()):
        others = {other: found for (other, dim), found in own.items() if dim == size and other != gpu}
        kin = [found for other, found in others.items() if _alike(other, gpu)]
        ways = (0.0, blocks, median(kin or others.values()))
        calls = [one for one in tables[gpu] if one.head_dim == size]
        errors = [
            float(np.median([abs(one.told(n, way) / one.micros[n] - 1) for one in calls for n in one.few]))
            for way in ways
        ]
        yield gpu, size, blocks, errors


def _alike(one: str, other: str) -> bool:
    return load_gpus()[one].architecture == load_gpus()[other].architecture
