"""The acts of a script, placed in one rank's stream: where its optimizer's state and its partitions lie.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 (partition_grads,
_offload_grad_partition_at_boundary, _swap_out_offload_fp32_gradients).
"""

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.memory.stream.placing import Handle, Waiting
from gpu_plan.planner.plain.among import among
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import nbytes_each
from gpu_plan.planner.strategy.zero import common
from gpu_plan.planner.strategy.zero.stage3.hooks.script import (
    AT_ONCE,
    FETCH,
    GIVE,
    GRADIENT,
    LABELS,
    PARTITION,
    REDUCE,
    REDUCED,
    TAKE,
    Script,
)
from gpu_plan.planner.strategy.zero.stage3.hooks.section import Section
from gpu_plan.planner.strategy.zero.stage3.nvme import Nvme
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions
from gpu_plan.planner.strategy.zero.stage3.queues import pools
from gpu_plan.planner.strategy.zero.stage3.storage import PERSISTENT
from gpu_plan.planner.trace.events import Category, IntArray

_NORM_CHUNK = 250_000_000
"""Elements per step of _constant_buffered_norm2."""
_OF_TAKEN = np.asarray((*LABELS, "weight partition from host"), dtype=np.object_)
"""What is taken, by number; the last is what a fetch brings."""
_STAYS = LABELS.index(PERSISTENT)
_FETCHED = len(LABELS)
_NOWHERE = -1
"""In place of the number of a storage that there is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a rank holds, and where."""

    parts: Partitions
    dtype: str
    ranks: int
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
        self._handles = np.full(script.tickets, _NOWHERE)
        """By ticket."""
        self._tickets = 0
        self._share = np.asarray(held.parts.share, dtype=np.int64)
        self._waiting: list[IntArray] = []
        """Events that free what waits, and which of the script's waits that is [2, frees]."""
        self._placed: list[IntArray] = []
        """Events of the strategy that were placed before each act."""
        self._rests: list[int] = []
        self._gather_pool, self._reduce_pool = pools(overlaps=held.overlaps)

    def run(self, in_pass: Pass, at: Point | None = None) -> None:
        """The next section, of this pass; all of it at one moment where `at` says so."""
        span, builder = next(self._sections), self._builder
        section = Section(self._script, span, at)
        self._gathers(section)
        gradients = section.of(GRADIENT)
        gone = builder.gradients_gone(in_pass, section.number[gradients])
        section.place(gradients[gone != 0], 0, gone[gone != 0])
        self._reduces(section)
        if self._held.offload:
            self._to_host(section, boundary=in_pass.last)
        acts, what = section.events()
        before = builder.num_placed
        builder.place_each(section.at[acts], what)
        self._placed.append(before + np.searchsorted(acts, np.arange(len(section.at))))
        waits = among(section.does[acts], (GIVE, GRADIENT)) & (section.more[acts] != AT_ONCE)
        self._waiting.append(np.stack([before + np.flatnonzero(waits), section.more[acts[waits]]]))

    def settle(self) -> None:
        """Blocks wait until what was placed before the act that their moment counts up to."""
        events, waits = np.concatenate(self._waiting, axis=1)
        if not len(events):
            return
        placed = np.append(np.concatenate(self._placed), self._builder.num_placed)
        moments = self._script.moments.copy()
        moments[:, 1] = placed[moments[:, 1]]
        until = self._script.until[:, waits]
        self._builder.wait_each(Waiting(events=events, freed=waits, until=until, moments=moments))

    def rests(self) -> list[Handle]:
        """Gradients that stay on the device until the step; asked once."""
        rests, self._rests = list(map(Handle, self._rests)), []
        return rests

    def _gathers(self, section: Section) -> None:
        """What is gathered and given back. What stays from a step on is gathered there, by the computing stream."""
        tickets, held = section.of(TAKE, FETCH), self._held
        taken = tickets if held.weights_on_host else section.of(TAKE)
        names = np.where(section.does[taken] == TAKE, section.more[taken], _FETCHED)
        streams = np.where(names == _STAYS, DEFAULT_STREAM, self._gather_pool)
        numel = section.number[taken] // np.where(section.does[taken] == FETCH, held.ranks, 1)
        sizes = nbytes_each(numel, held.dtype)
        made = self._builder.store_each(sizes, Category.COMMUNICATION, _OF_TAKEN[names].tolist(), streams)
        section.place(taken, 0, 2 * made + 1)
        first = self._tickets
        self._tickets += len(tickets)
        self._handles[first + np.searchsorted(tickets, taken)] = made
        given = section.of(GIVE)
        handles = self._handles[section.number[given]]
        section.place(given[handles != _NOWHERE], 0, 2 * handles[handles != _NOWHERE])

    def _reduces(self, section: Section) -> None:
        """What buckets are copied into, until they are done with."""
        begun, ended = section.of(REDUCE), section.of(REDUCED)
        copied = np.flatnonzero(section.number[begun])
        made = self._made(
            section.number[begun[copied]], self._held.dtype, Category.COMMUNICATION, "reduce-scatter input"
        )
        section.place(begun[copied], 0, 2 * made + 1)
        section.place(ended[copied], 1, 2 * made)

    def _to_host(self, section: Section, *, boundary: bool) -> None:
        """partition_grads and _offload_grad_partition_at_boundary: there and back, norm, fp32 copy.

        fp32 partitions of a group that swaps wait for the whole bucket and go to NVMe together
        (_swap_out_offload_fp32_gradients). One of which a piece gets no file stays on the device until the step
        (swap_tensor/optimizer_utils.py: _swap_out_gradients keeps the piece, a view of it).
        """
        held, parts = self._held, section.of(PARTITION)
        share = self._share[section.number[parts]]
        back = self._made(share, held.dtype, Category.GRADIENTS, "gradient partition back from host")
        section.place(parts, 0, 2 * back + 1)
        if not boundary:
            section.place(parts, 5, 2 * back)
            return
        norm = self._made(np.minimum(share, _NORM_CHUNK), common.NORM, Category.TEMPORARY, "gradient norm in fp64")
        section.place(parts, 1, 2 * norm + 1)
        section.place(parts, 2, 2 * norm)
        filed, stays = self._files(section.number[parts])
        kept = back[filed]
        if held.dtype != common.MASTER:
            label = "gradient in fp32 on its way to host"
            passing = self._made(share[~filed], common.MASTER, Category.TEMPORARY, label)
            section.place(parts[~filed], 3, 2 * passing + 1)
            section.place(parts[~filed], 4, 2 * passing)
            kept = self._made(share[filed], common.MASTER, Category.GRADIENTS, "fp32 gradient on its way to NVMe")
            section.place(parts[filed], 3, 2 * kept + 1)
            section.place(parts, 5, 2 * back)
        else:
            section.place(parts[~filed], 5, 2 * back[~filed])
        ended = section.of(REDUCED)
        done = ended[np.searchsorted(ended, parts[filed])]
        section.place(done[~stays], 0, 2 * kept[~stays])
        self._rests += kept[stays].tolist()

    def _files(self, parameters: IntArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Of which parameters [parameters] the fp32 gradient goes to NVMe, and which of those [files] stay here too."""
        nvme = self._held.nvme
        files = [None if nvme is None else nvme.gradients[one] for one in parameters.tolist()]
        filed = np.asarray([file is not None for file in files], dtype=np.bool_)
        return filed, np.asarray([file.stays for file in files if file is not None], dtype=np.bool_)

    def _made(self, numel: IntArray, dtype: str, category: Category, label: str) -> IntArray:
        """Storages of the stream that reduces: their numbers."""
        count = len(numel)
        return self._builder.store_each(
            nbytes_each(numel, dtype), category, [label] * count, np.full(count, self._reduce_pool)
        )
