"""The acts of a script, placed in one rank's stream: where its optimizer's state and its partitions lie.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 (partition_grads,
_offload_grad_partition_at_boundary, _swap_out_offload_fp32_gradients).
"""

from dataclasses import dataclass

import numpy as np

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.memory.stream.placing import Handle, Waiting
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.zero import common
from gpu_plan.planner.strategy.zero.stage3.gather import PERSISTENT
from gpu_plan.planner.strategy.zero.stage3.hooks.script import (
    AT_ONCE,
    FETCH,
    GIVE,
    GRADIENT,
    LABELS,
    PARTITION,
    REDUCE,
    TAKE,
    Act,
    Script,
)
from gpu_plan.planner.strategy.zero.stage3.nvme import Nvme
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions
from gpu_plan.planner.strategy.zero.stage3.queues import pools
from gpu_plan.planner.trace.events import Category

_FREES = (GIVE, GRADIENT)
_NORM_CHUNK = 250_000_000
"""Elements per step of _constant_buffered_norm2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a rank holds, and where."""

    parts: Partitions
    dtype: str
    overlaps: bool
    offload: bool
    """Whether the optimizer's state lies elsewhere."""
    weights_on_host: bool
    nvme: Nvme | None


class Acts:
    """Carries out a script, section by section."""

    def __init__(self, script: Script, held: Held, builder: StreamBuilder) -> None:
        self._script, self._held, self._builder = script, held, builder
        self._sections = iter(script.sections)
        self._handles: list[Handle | None] = []
        """By ticket."""
        self._waiting: list[tuple[int, int]] = []
        """Events that free what waits, and which of the script's waits that is."""
        self._placed: list[int] = []
        """Events of the strategy that were placed before each act."""
        self._rests: list[Handle] = []
        self._waiting_files: list[Handle] = []
        self._copy: Handle | None = None
        self._gather_pool, self._reduce_pool = pools(overlaps=held.overlaps)

    def run(self, in_pass: Pass, at: Point | None = None) -> None:
        """The next section, of this pass; all of it at one moment where `at` says so."""
        section, builder, placed = next(self._sections), self._builder, self._placed
        for act in self._script.acts[section.start : section.stop]:
            before = builder.num_placed
            placed.append(before)
            self._carry_out(act if at is None else (at, *act[1:]), in_pass)
            if act[1] in _FREES and act[3] != AT_ONCE and builder.num_placed > before:
                self._waiting.append((before, act[3]))

    def settle(self) -> None:
        """Blocks wait until what was placed before the act that their moment counts up to."""
        if not self._waiting:
            return
        events, waits = np.asarray(self._waiting, dtype=np.int64).T
        placed = np.asarray([*self._placed, self._builder.num_placed], dtype=np.int64)
        until, moments = self._script.until[:, waits].copy(), self._script.moments.copy()
        until[..., 1] = np.where(until[..., 1] < 0, -1, placed[until[..., 1]])
        moments[:, 1] = placed[moments[:, 1]]
        self._builder.wait_each(Waiting(events=events, freed=waits, until=until, moments=moments))

    def rests(self) -> list[Handle]:
        """Gradients that stay on the device until the step; asked once."""
        rests, self._rests = self._rests, []
        return rests

    def _carry_out(self, act: Act, in_pass: Pass) -> None:
        at, does, number, more = act
        builder = self._builder
        if does == GIVE:
            handle = self._handles[number]
            if handle is not None:
                builder.free(at, handle)
        elif does == TAKE:
            self._take(at, number, LABELS[more])
        elif does == FETCH:
            if self._held.weights_on_host:
                self._take(at, number, "weight partition from host")
            else:
                self._handles.append(None)
        elif does == GRADIENT:
            builder.free_gradient(at, in_pass, number)
        else:
            self._reduce(act, in_pass)

    def _take(self, at: Point, elements: int, label: str) -> None:
        """What stays from a step on is gathered there, by the computing stream."""
        size = nbytes(elements, self._held.dtype)
        pool = DEFAULT_STREAM if label == PERSISTENT else self._gather_pool
        self._handles.append(self._builder.alloc(at, size, Category.COMMUNICATION, label, cuda_stream=pool))

    def _reduce(self, act: Act, in_pass: Pass) -> None:
        """One part of a bucket's reduction; files wait for the whole bucket."""
        at, does, number, _ = act
        builder = self._builder
        if does == PARTITION:
            if self._held.offload:
                self._waiting_files += self._to_host(at, number, in_pass.last)
        elif does == REDUCE:
            if number:
                size = nbytes(number, self._held.dtype)
                label, pool = "reduce-scatter input", self._reduce_pool
                self._copy = builder.alloc(at, size, Category.COMMUNICATION, label, cuda_stream=pool)
        else:
            builder.free_each(at, self._waiting_files)
            self._waiting_files.clear()
            if self._copy is not None:
                builder.free(at, self._copy)
            self._copy = None

    def _to_host(self, at: Point, parameter: int, boundary: bool) -> list[Handle]:
        """partition_grads and _offload_grad_partition_at_boundary: there and back, norm, fp32 copy.

        Returns fp32 partitions that wait for the whole bucket: those of a group that swaps go to NVMe together
        (_swap_out_offload_fp32_gradients). One of which a piece gets no file stays on the device until the step
        (swap_tensor/optimizer_utils.py: _swap_out_gradients keeps the piece, a view of it).
        """
        builder, share, pool = self._builder, self._held.parts.share[parameter], self._reduce_pool
        size = nbytes(share, self._held.dtype)
        back = builder.alloc(at, size, Category.GRADIENTS, "gradient partition back from host", cuda_stream=pool)
        file = self._held.nvme.gradients[parameter] if self._held.nvme is not None and boundary else None
        kept: Handle | None = None
        if boundary:
            norm = nbytes(min(share, _NORM_CHUNK), common.NORM)
            builder.transient(at, norm, Category.TEMPORARY, "gradient norm in fp64", cuda_stream=pool)
            size = nbytes(share, common.MASTER)
            wide = self._held.dtype != common.MASTER
            if file is not None:
                label = "fp32 gradient on its way to NVMe"
                kept = builder.alloc(at, size, Category.GRADIENTS, label, cuda_stream=pool) if wide else back
            elif wide:
                builder.transient(at, size, Category.TEMPORARY, "gradient in fp32 on its way to host", cuda_stream=pool)
        if kept is not back:
            builder.free(at, back)
        if kept is None or file is None:
            return []
        if file.stays:
            self._rests.append(kept)
            return []
        return [kept]
