"""ZeRO-3's parameter coordinator: which whole parameters are on the device between which module events.

Mirrors deepspeed/runtime/zero/partitioned_param_coordinator.py: PartitionedParameterCoordinator (reset_step,
fetch_sub_module, release_sub_module, __params_to_release, release_and_reset_all) and partition_parameters.py:
_all_gather_dtype, AllGatherCoalescedHandle.wait, NoGatherCoalescedHandle. The first forward and backward record the
order of modules; from the second on, parameters are prefetched along it, and those soon needed again are not released.
"""

import bisect
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.zero.stage3.storage import COALESCED, GATHERED, PERSISTENT, Gathered, Limits, Storage
from gpu_plan.planner.strategy.zero.stage3.swap import SwapPool

At = TypeVar("At")
_LONG_AGO = -(10**10)
"""The latest use of what was never used, before every step; DeepSpeed says -1e10."""


@dataclass(slots=True)
class _Flight:
    """One all-gather call and the parameters that it brings."""

    parameters: list[int]
    buffer: int | None = None
    """The flat buffer of a coalesced call; a call for one parameter gathers in place."""
    landed: bool = False
    waiting: int = 0


@dataclass(slots=True, kw_only=True)
class Coordinator(Generic[At]):
    """The coordinator's state; events are fed in time order."""

    numel: Sequence[int]
    """Elements of every parameter."""
    owned: Mapping[int, Sequence[int]]
    """Parameters that each module holds directly."""
    persistent: frozenset[int]
    limits: Limits
    storage: Storage[At]
    on_host: bool = False
    """Whether partitions lie in host memory (offload_param), so that a single rank gathers too."""
    pool: SwapPool | None = None
    """Through which partitions pass that lie on NVMe."""
    viewed: frozenset[int] = frozenset()
    """Parameters whose gathered storage autograd keeps from the forward pass to the module's backward."""
    in_graph: frozenset[int] = frozenset()
    """Parameters whose gathered storage the graph itself names until it is dropped: packed 4-bit weights."""
    frozen: frozenset[int] = frozenset()
    """Parameters that are not trained."""
    read: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Parameters of others that each module reads in forward: its own from the first backward on."""
    scale: Sequence[int] = ()
    """Elements of storage that one element of every parameter takes; none: one throughout."""
    gathers: Counter[Gathered] = field(default_factory=Counter)
    """All-gathers since the last forward began."""
    _elements: list[int] = field(default_factory=list)
    """Of every parameter's storage when it is whole, padded to the ranks."""
    _recorded: list[int] | None = None
    _complete: bool = False
    _order: list[int] = field(default_factory=list)
    _passed: list[int] = field(default_factory=list)
    _uses: dict[int, list[int]] = field(default_factory=dict)
    _queue: deque[tuple[int, int]] = field(default_factory=deque)
    _trace: list[tuple[int, int]] = field(default_factory=list)
    _latest: dict[int, int] = field(default_factory=dict)
    _step: int = 0
    _live: int = 0
    _whole: dict[int, int] = field(default_factory=dict)
    """Storage of every available parameter."""
    _flights: dict[int, _Flight] = field(default_factory=dict)
    _kept: dict[int, list[int]] = field(default_factory=dict)
    """Storages of released parameters that autograd still holds."""
    _graphs: list[tuple[set[int], list[int]]] = field(default_factory=list)
    """By pass, newest last: storages that its graph names, and of them those of released parameters."""
    _issued: bool = False
    """Whether anything was gathered that the computation does not wait for yet."""
    _users: dict[int, set[int]] = field(default_factory=dict)
    _backward: dict[int, None] = field(default_factory=dict)
    _recomputed: dict[int, list[int]] = field(default_factory=dict)
    """Frozen parameters that a recomputation gathered, by the module whose backward asked for it."""

    def __post_init__(self) -> None:
        world, scale = self.limits.world_size, self.scale or [1] * len(self.numel)
        self._elements = [-(-count // world) * world * by for count, by in zip(self.numel, scale, strict=True)]

    # -- moments ---------------------------------------------------------------------------------------------

    def begin(self, at: At) -> None:
        """The root module's forward begins."""
        self._graphs.append((set(), []))
        for parameter in list(self._flights):
            self._land(at, parameter)
            self._release(at, parameter)
        if self._recorded is None:
            self._recorded = []
        elif not self._complete:
            self._learn(self._recorded)
        self._queue = deque(self._trace)
        self._latest, self._step, self._live = {}, 0, 0
        self.gathers.clear()

    def fetch(self, at: At, module: int, *, backward: bool) -> None:
        """A module is about to run."""
        if backward:
            self._backward[module] = None
        if self._recorded is not None and not self._complete:
            self._recorded.append(module)
        needed = self._held_by(module, backward=backward)
        if needed:
            self._gather(at, needed, backward=backward, ahead=False)
            self._land_each(at, module, needed)
            if not backward:
                self._attribute(needed)
        if self._issued:
            self.storage.use(at, 0)
            self._issued = False
        if self._complete and (self._queue or self.pool is not None):
            if needed:
                self._dequeue(needed)
            self._prefetch(at, backward=backward)
        self._step += 1

    def release(self, at: At, module: int, *, backward: bool, recorded: bool = False, recomputed: bool = False) -> None:
        """A module has run; `recorded`: its forward, for a backward to come; `recomputed`: for one that is under way.

        What a recomputation saves, torch/utils/checkpoint.py keeps as detached views (_recomputation_hook), if it
        requires a gradient: of every trained weight, then.
        """
        owned = self._held_by(module, backward=backward)
        if backward:
            for parameter in owned:
                self.forget_view(at, parameter)
            self._backward.pop(module, None)
            self._let_go_recomputed(at, module)
        elif module in self._backward:
            return  # Recomputation that stops early leaves the running module without its exit hook.
        for parameter in owned:
            if parameter in self._users:
                self._users[parameter].discard(module)
            if parameter in self.in_graph and not backward:
                self._name(parameter, once=not recomputed)
            if not self._complete or not self._soon(parameter):
                seen = parameter in self.viewed or (recomputed and parameter not in self.frozen)
                self._release(at, parameter, viewed=recorded and seen)

    def finish_backward(self, at: At) -> None:
        """Modules whose input needs no gradient never tell that they are done."""
        for module in list(self._backward):
            # The backward of a module's operators lets go of what autograd had saved for them.
            for parameter in self._held_by(module, backward=True):
                self.forget_view(at, parameter)
            for parameter in self._held_by(module, backward=True):
                if parameter in self._users:
                    self._users[parameter].discard(module)
                if parameter not in self.persistent:
                    self._release(at, parameter)
            self._let_go_recomputed(at, module)
        self._backward.clear()

    def begin_step(self, at: At) -> None:
        """Everything is partitioned before the optimizer's step."""
        for parameter in list(self._flights):
            self._land(at, parameter)
        self._users.clear()
        for parameter in list(self._whole):
            self._release(at, parameter)

    def end_step(self, at: At) -> None:
        """Persistent parameters are gathered for good."""
        persistent = sorted(self.persistent) if self._gathers else []
        if self.pool is not None:
            self.pool.ensure(persistent)
        partitions = self._copy_over(at, persistent)
        for parameter in persistent:
            self._whole[parameter] = self.storage.take(at, self._elements[parameter], PERSISTENT, (parameter,))
        for ticket in partitions:
            self.storage.give(at, ticket)

    def present(self) -> frozenset[int]:
        """Parameters that are whole, or on their way."""
        return frozenset(self._whole) | frozenset(self._flights)

    def _held_by(self, module: int, *, backward: bool) -> Sequence[int]:
        owned = self.owned.get(module, ())
        read = self.read.get(module) if self.read else None
        if not read or not (backward or self._complete):
            return owned
        return [*owned, *(parameter for parameter in read if parameter not in owned)]

    # -- recomputation ---------------------------------------------------------------------------------------

    def _attribute(self, needed: Sequence[int]) -> None:
        """Forward within backward: what is frozen stays until the module is done whose backward began last.

        partitioned_param_coordinator.py: _fetch_sub_module_impl, update_recompute_parameters.
        """
        if not self._backward:
            return
        owner = next(reversed(self._backward))
        for parameter in needed:
            if parameter in self.frozen:
                self._recomputed.setdefault(owner, []).append(parameter)
                self._users.setdefault(parameter, set()).add(owner)

    def _let_go_recomputed(self, at: At, owner: int) -> None:
        """release_sub_module, of `ds_recompute_parameters`: what is persistent stays."""
        for parameter in dict.fromkeys(self._recomputed.pop(owner, ())):
            self._users[parameter].discard(owner)
            if parameter not in self.persistent:
                self._release(at, parameter)

    # -- gathering -------------------------------------------------------------------------------------------

    def _scaled(self, parameter: int) -> int:
        return self.scale[parameter] if self.scale else 1

    @property
    def _gathers(self) -> bool:
        """On one rank the partition is the parameter, unless it lies on the host."""
        return self.on_host or self.limits.world_size > 1

    def _copy_over(self, at: At, parameters: Sequence[int]) -> list[int]:
        """This rank's partitions on the device, to be gathered from there; a single rank copies straight."""
        world = self.limits.world_size
        if world == 1:
            return []
        return [self.storage.fetch(at, self._elements[parameter] // world, parameter) for parameter in parameters]

    def _gather(self, at: At, parameters: Sequence[int], *, backward: bool, ahead: bool) -> None:
        whole, flights = self._whole, self._flights
        absent = [p for p in parameters if p not in whole and p not in flights]
        if not absent or not self._gathers:
            return
        self._live += sum([self.numel[p] for p in absent])
        if self.pool is not None:
            self.pool.ensure(absent)
        self._issued = True
        in_place = len(absent) == 1 or self.limits.world_size == 1
        if not self.scale:
            self._call(at, absent, in_place, backward=backward, ahead=ahead)
            return
        for scale in sorted({self._scaled(parameter) for parameter in absent}):
            self._call(at, [p for p in absent if self._scaled(p) == scale], in_place, backward=backward, ahead=ahead)

    def _call(self, at: At, absent: list[int], in_place: bool, *, backward: bool, ahead: bool) -> None:
        """One all-gather, of parameters of one type."""
        elements = sum([self._elements[parameter] for parameter in absent])
        self.gathers[Gathered(tuple(absent), backward, ahead)] += 1
        flight = _Flight(absent, waiting=len(absent))
        if in_place:
            for parameter in absent:
                self._whole[parameter] = self.storage.take(at, self._elements[parameter], GATHERED, (parameter,))
            flight.landed = True
        else:
            flight.buffer = self.storage.take(at, elements, COALESCED, absent)
        for ticket in self._copy_over(at, absent):
            self.storage.give(at, ticket)
        self.storage.gather(at, elements, absent)
        for parameter in absent:
            self._flights[parameter] = flight
            if self.pool is not None and parameter in self.persistent:
                self.pool.release(parameter)

    def _land_each(self, at: At, module: int, needed: Sequence[int]) -> None:
        """What the module needs becomes available; waiting for one parameter is an event of its own."""
        for parameter in needed:
            self._users.setdefault(parameter, set()).add(module)
            if parameter in self._flights:
                self.storage.limit(at)
                self._land(at, parameter)
                self.storage.use(at, 1)
                self._issued = False

    def _land(self, at: At, parameter: int) -> None:
        """Waiting for one parameter copies all of its call out of the flat buffer."""
        flight = self._flights.pop(parameter)
        if not flight.landed:
            for other in flight.parameters:
                self._whole[other] = self.storage.take(at, self.numel[other] * self._scaled(other), GATHERED)
            flight.landed = True
        flight.waiting -= 1
        if flight.waiting == 0 and flight.buffer is not None:
            self.storage.give(at, flight.buffer)

    def _release(self, at: At, parameter: int, *, viewed: bool = False) -> None:
        if self._users.get(parameter) or parameter in self._flights or parameter not in self._whole:
            return
        ticket = self._whole.pop(parameter)
        if self.pool is not None:
            self.pool.release(parameter)
        orphans = None
        if self.in_graph:
            orphans = next((left for named, left in reversed(self._graphs) if ticket in named), None)
        if orphans is not None:
            orphans.append(ticket)
        elif viewed:
            self._kept.setdefault(parameter, []).append(ticket)
        else:
            self.storage.give(at, ticket)
        self._live -= self.numel[parameter]

    def _name(self, parameter: int, *, once: bool) -> None:
        """A forward pass whose graph stays names the gathered storage; that of a recomputation is dropped with it."""
        if once and parameter in self._whole:
            self._graphs[-1][0].add(self._whole[parameter])

    def drop_graphs(self, at: At, *, but: int) -> None:
        """The loop lets go of all but the newest passes: bitsandbytes' autograd functions go, with `ctx.tensors`.

        bitsandbytes autograd/_functions.py: MatMul4Bit keeps the weight in an attribute, which backward does not free.
        """
        while len(self._graphs) > but:
            for ticket in self._graphs.pop(0)[1]:
                self.storage.give(at, ticket)

    def forget_view(self, at: At, parameter: int) -> None:
        """The operator that had saved a view of a parameter has run backward: its gradient is there."""
        if parameter in self._kept:
            for ticket in self._kept.pop(parameter):
                self.storage.give(at, ticket)

    # -- the recorded order ----------------------------------------------------------------------------------

    def _learn(self, order: list[int]) -> None:
        self._complete, self._order = True, order
        passed = 0
        for step, module in enumerate(order):
            self._passed.append(passed)
            for parameter in sorted(self._held_by(module, backward=False)):
                self._trace.append((parameter, step))
                self._uses.setdefault(parameter, []).append(step)
                passed += self.numel[parameter]

    def _soon(self, parameter: int) -> bool:
        """Whether a parameter stays: persistent, fetched ahead for later, or used again within reach."""
        if parameter in self.persistent or self._latest.get(parameter, _LONG_AGO) > self._step:
            return True
        uses = self._uses.get(parameter, [])
        following = bisect.bisect_left(uses, self._step)
        if following == len(uses):
            return False
        return self._passed[uses[following]] - self._passed[self._step] < self.limits.max_reuse

    def _dequeue(self, needed: Sequence[int]) -> None:
        fresh = {p for p in needed if self._latest.get(p, _LONG_AGO) < self._step}
        seen: set[int] = set()
        while self._queue and len(seen) < len(fresh):
            parameter, step = self._queue.popleft()
            self._latest[parameter] = step
            seen.add(parameter)

    def _prefetch(self, at: At, *, backward: bool) -> None:
        room = min(self.limits.max_live - self._live, self.limits.prefetch)
        chosen: list[int] = []
        elements = 0
        while self._queue and elements < room:
            if self.pool is not None and self.pool.absent(self._queue[0][0]):
                break
            parameter, step = self._queue.popleft()
            self._latest[parameter] = max(self._latest.get(parameter, _LONG_AGO), step)
            if parameter not in self._whole and parameter not in self._flights and parameter not in chosen:
                chosen.append(parameter)
                elements += self.numel[parameter]
        if chosen:
            self._gather(at, chosen, backward=backward, ahead=True)
        if self.pool is not None and self.limits.prefetch > 0:
            in_flight = sum(self.numel[parameter] for parameter in self._flights)
            self.pool.read_ahead((parameter for parameter, _ in self._queue), self.numel, in_flight)
