"""Records every storage that a step makes on the meta device, and when each one dies.

A dispatch mode sees each operator below autograd; a weak reference on every new storage tells its death at
the moment the last reference goes, which is when CUDA's caching allocator would get the block back.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gpu_plan.planner.model.build.lean.dynamo import is_away
from gpu_plan.planner.model.build.lean.imports import dynamo_away
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind, Mark
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import BACKWARD, FORWARD, ModuleTracker
from gpu_plan.planner.trace.recording.operators.engine_adds import ZEROS, done_in_place
from gpu_plan.planner.trace.recording.operators.facts import facts_of, tensors_in
from gpu_plan.planner.trace.recording.operators.meta_results import Kept, meta_result
from gpu_plan.planner.trace.recording.operators.work import described, operator_flops, unread
from gpu_plan.planner.trace.rules import Ruled

_GRADIENTS = CATEGORY_INDEX[Category.GRADIENTS]
_ACTIVATIONS = CATEGORY_INDEX[Category.ACTIVATIONS]
_TEMPORARY = CATEGORY_INDEX[Category.TEMPORARY]
_BROUGHT = frozenset(("_to_copy", "ones", "zeros", "full", "rand", "randn", "randint", "arange", "empty"))
"""Operators that bring a batch to the device, or draw one there."""
STANDS_FOR_BYTES = "stands_for_bytes"
"""Attribute of a tensor in whose place a kernel reads and writes another one: that one's bytes an element."""


@dataclass(slots=True)
class RawTensor:
    """One recorded storage."""

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    category: int
    module: int
    operator: str
    parameter: int = -1
    is_scratch: bool = False
    """Whether it is a kernel's own temporary, from `KernelProfile.scratch`."""
    ruled: Ruled | None = None
    """Of such a one: the rule that its bytes follow, where they lie on no line."""
    origin: str = ""
    """Line of the user's own script that made it: `train.py:88`; empty elsewhere."""
    name: str = ""
    """The parameter, buffer or state that it is, where a whole block is recorded; empty elsewhere."""


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that was alive when the recording ended."""

    storage: weakref.ref[Any]
    tensor: RawTensor


@dataclass(slots=True)
class RawOperator:
    """One kernel launch."""

    name: str
    module: int
    phase: int
    flops: int
    moved_bytes: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(slots=True)
class RawTrace:
    """What the recorder saw, at one batch size, before folding is undone."""

    kind: list[int] = field(default_factory=list)
    subject: list[int] = field(default_factory=list)
    tensors: list[RawTensor] = field(default_factory=list)
    operators: list[RawOperator] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    host_reads: list[str] = field(default_factory=list)


@cache
def _first_decomposition(away: bool) -> None:
    """torch's decompositions import half of torch at the first call in a process, and something of that keeps its
    frames: tensors on the stack would never be seen to die. Let that be nobody's.
    """
    with dynamo_away() if away else contextlib.nullcontext(), _disable_current_modes():
        matrix = torch.empty(1, 1, device="meta")
        torch.addmm(torch.empty(1, device="meta"), matrix, matrix)


class Recorder(TorchDispatchMode):
    """Dispatch mode that turns a step into a RawTrace.

    `known` storages (parameters, buffers, batch) are not events: strategies place them.
    """

    keeps_rules = False
    """Whether temporaries that follow a rule keep it, and stand there with no bytes where the kernel does without."""

    def __init__(
        self,
        modules: ModuleTracker,
        profile: KernelProfile,
        host_reads: HostReads,
        wrappers: tuple[type, ...] = (),
        origin: Callable[[], str] = str,
    ) -> None:
        super().__init__()
        _first_decomposition(is_away())
        self._origin = origin
        self._wrappers = wrappers
        self.raw = RawTrace()
        self._modules = modules
        self._profile = profile
        self._host_reads = host_reads
        self._ids: dict[int, int] = {}
        self._watch: dict[int, weakref.ref[Any]] = {}
        self._known: dict[int, int] = {}
        self._keep: list[Any] = []
        self._bound = 0
        """Storages that there were when a forward pass last ended."""
        self._in_place: dict[int, tuple[int, int]] = {}
        self._linears = 0
        self._viewed: set[int] = set()
        modules.attach(self._event)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No wrapper around the dispatch: it would import torch._dynamo and stand between us and the caller."""
        return False

    # -- what exists before the step ------------------------------------------------------------

    def know(self, tensors: Iterable[torch.Tensor]) -> None:
        """Registers storages that exist before the step and are placed by the strategy."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = -1
            self._keep.append(storage)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether its storage is one of those, or was made in the step."""
        return tensor.untyped_storage()._cdata in self._known

    @property
    def is_empty(self) -> bool:
        """Whether something was recorded, and nothing of it stands any more but what was brought or drawn since a
        forward pass ended: the next batch."""
        bound = self._bound
        left = [tid for tid in self._watch if tid < bound or self.raw.tensors[tid].operator not in _BROUGHT]
        return bound > 0 and not left

    @contextlib.contextmanager
    def linear(self) -> Iterator[None]:
        """Within, torch's linear function runs: other code may stand in its place, which keeps no view of a weight."""
        self._linears += 1
        try:
            yield
        finally:
            self._linears -= 1

    def views(self, tensor: torch.Tensor) -> bool:
        """Whether forward used a parameter through a view of it, which an operator keeps for backward."""
        return tensor.untyped_storage()._cdata in self._viewed

    def mark(self, mark: Mark) -> None:
        """Notes a point of the loop."""
        if mark == Mark.OUTPUTS_BOUND:
            self._bound = len(self.raw.tensors)
        self._event(Kind.MARK, mark)

    def categorise(self, tensors: Iterable[torch.Tensor], category: Category) -> None:
        """Puts recorded storages into another category than the one of their phase."""
        for tensor in tensors:
            tid = self._id_of(tensor)
            if tid >= 0:
                self.raw.tensors[tid].category = CATEGORY_INDEX[category]

    def gradient_again(self, parameter: int, gradient: torch.Tensor, before: int) -> int:
        """`gradient` is a parameter's finished one in a later pass of the same iteration, where `before` was recorded
        of an earlier pass: that one may have been let go since, and another stands. Gives the one that stands."""
        tid = self._ids.get(gradient.untyped_storage()._cdata, -1)
        if tid < 0 or tid == before:
            return before
        if before >= 0:
            self.raw.tensors[before].category = _TEMPORARY
            self.raw.tensors[before].parameter = -1
        self.raw.tensors[tid].category = _GRADIENTS
        self.raw.tensors[tid].parameter = parameter
        return tid

    def gradient_ready(self, parameter: int, gradient: torch.Tensor) -> int:
        """Notes that `gradient` is the finished gradient of a parameter in this pass; its storage's number, or -1."""
        tid = self._ids.get(gradient.untyped_storage()._cdata)
        if tid is not None:
            self.raw.tensors[tid].category = _GRADIENTS
            self.raw.tensors[tid].parameter = parameter
        self._event(Kind.GRADIENT, parameter)
        return -1 if tid is None else tid

    # -- recording ----------------------------------------------------------------------------------

    def _event(self, kind: int, subject: int) -> None:
        self.raw.kind.append(kind)
        self.raw.subject.append(subject)

    def _died(self, key: int, tid: int) -> Callable[[Any], None]:
        def callback(_: Any) -> None:
            self._ids.pop(key, None)
            self._watch.pop(tid, None)
            self._event(Kind.FREE, tid)

        return callback

    def _allocate(self, tensor: torch.Tensor, operator: str, where: int, phase: int) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        tid = len(self.raw.tensors)
        self.raw.tensors.append(
            RawTensor(
                nbytes=storage.nbytes(),
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                category=_TEMPORARY if phase == BACKWARD else _ACTIVATIONS,
                module=where,
                operator=operator,
                origin=self._origin(),
            )
        )
        self._ids[key] = tid
        self._watch[tid] = weakref.ref(storage, self._died(key, tid))
        self._event(Kind.ALLOC, tid)
        return tid

    def _scratch(self, sizes: list[int], ruled: list[Ruled], operator: str, where: int) -> None:
        """A kernel's own temporaries: there, all at once, while the kernel runs."""
        first = len(self.raw.tensors)
        for nbytes, rule in (*((size, None) for size in sizes), *((one.nbytes(0), one) for one in ruled)):
            self._event(Kind.ALLOC, len(self.raw.tensors))
            tensor = RawTensor(nbytes, (nbytes,), "uint8", _TEMPORARY, where, operator, is_scratch=True, ruled=rule)
            self.raw.tensors.append(tensor)
        for tid in reversed(range(first, len(self.raw.tensors))):
            self._event(Kind.FREE, tid)

    def _overwritten(self, operand: torch.Tensor, operator: str) -> int:
        """Storage that `operator` writes into on a device: any for sums, one just zeroed for fills; else -1."""
        old = self._id_of(operand)
        return old if operator == "add" or (old >= 0 and self.raw.tensors[old].operator in ZEROS) else -1

    def _id_of(self, tensor: torch.Tensor) -> int:
        return self._ids.get(tensor.untyped_storage()._cdata, -1)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._wrappers and any(issubclass(kind, self._wrappers) for kind in types):
            return NotImplemented  # the wrapper unpacks itself, and what it calls comes by here
        # The function mode stands above autograd; down here it would see each `.shape` and each step of a meta kernel.
        with torch._C.DisableTorchFunction():
            return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        facts = facts_of(func)
        if facts.asks:
            answer = self._host_reads.answer(func, args, kwargs)
            if answer is not None:
                return self._answered(answer.value)
        name = facts.name
        where, phase = self._modules.locate()
        reads = tensors_in((*args, *kwargs.values()) if kwargs else args)
        if facts.saves and phase == FORWARD and not self._linears:
            self._note_views(reads)
        in_place = facts.may_write_in_place and done_in_place(name, args, phase == BACKWARD)
        old = self._overwritten(args[0], name) if in_place else -1
        kept, run = None, META_OPS.get(func, func)  # others stand there between devices
        if facts.functional:
            out, kept = meta_result(func, run, args, kwargs)
        else:
            out = run(*args, **kwargs)
        self._host_reads.follow(func, args, kwargs, out)
        written = [tensor for tensor in tensors_in((out,)) if tensor.is_meta]
        fresh = []
        for tensor in written:
            key = tensor.untyped_storage()._cdata
            if key not in self._ids and key not in self._known:
                fresh.append(self._allocate(tensor, name, where, phase))
        if fresh and old >= 0 and self.raw.tensors[old].nbytes == self.raw.tensors[fresh[0]].nbytes:
            self._in_place[fresh[0]] = (old, len(self.raw.kind))
        if facts.silent and not fresh:
            return out
        scratch, ruled = self._profile.scratch(name, args, written), self._profile.ruled_scratch(name, args)
        if not self.keeps_rules:
            scratch, ruled = scratch + [one.nbytes(0) for one in ruled if one.nbytes(0)], []
        self._scratch(scratch, ruled, name, where)
        moved = _traffic((*reads, *written)) - _traffic(unread(func, args, kwargs))
        flops = _flops(func, args, out, kept)
        self._note_operator(func, name, where, phase, reads, written, args, flops, moved)
        return out

    def _note_views(self, reads: list[torch.Tensor]) -> None:
        """A parameter itself is saved without its storage (torch/csrc/autograd/saved_variable.cpp)."""
        if torch.is_grad_enabled():
            keys = (t.untyped_storage()._cdata for t in reads if not isinstance(t, torch.nn.Parameter))
            self._viewed.update(key for key in keys if key in self._known)

    def _answered(self, value: Any) -> Any:
        """A host read's answer; tensors of a data-dependent shape are storages like any other."""
        where, phase = self._modules.locate()
        for tensor in tensors_in((value,)):
            if tensor.device.type == "meta" and self._id_of(tensor) < 0:
                self._allocate(tensor, "host_read", where, phase)
        return value

    def _note_operator(
        self,
        func: Any,
        name: str,
        where: int,
        phase: int,
        reads: list[torch.Tensor],
        written: list[torch.Tensor],
        args: tuple[Any, ...],
        flops: int,
        moved: int,
    ) -> None:
        self.raw.operators.append(
            RawOperator(
                name=described(func, name, args),
                module=where,
                phase=phase,
                flops=flops,
                moved_bytes=moved,
                reads=tuple([self._id_of(tensor) for tensor in reads]),
                writes=tuple([self._id_of(tensor) for tensor in written]),
            )
        )
        self._event(Kind.OPERATOR, len(self.raw.operators) - 1)

    # -- the end --------------------------------------------------------------------------------------

    def alive(self) -> list[Held]:
        """Storages that stand now, but for gradients; asked before `finish`, which forgets them."""
        tensors = self.raw.tensors
        return [Held(watch, tensors[tid]) for tid, watch in self._watch.items() if tensors[tid].parameter < 0]

    def standing(self) -> list[weakref.ref[Any]]:
        """The same, each to be asked later whether it still stands; nothing is recorded by that."""
        return [weakref.ref(storage) for one in self._watch.values() if (storage := one()) is not None]

    def finish(self) -> RawTrace:
        """The recorded step; storages still alive simply have no FREE event."""
        self.raw.host_reads = self._host_reads.answered()
        self.raw.modules = self._modules.names()
        for watch in list(self._watch):
            self._watch.pop(watch)
        merge_in_place(self.raw, self._in_place)
        return self.raw


def keep_gradients(raw: RawTrace) -> None:
    """Undoes what cleared finished gradients before the last of several optimizers had stepped: a plan's own step
    clears those of all, and holds each until then."""
    kept = [
        index
        for index, (kind, subject) in enumerate(zip(raw.kind, raw.subject, strict=True))
        if kind != Kind.FREE or raw.tensors[subject].parameter < 0
    ]
    raw.kind[:] = [raw.kind[index] for index in kept]
    raw.subject[:] = [raw.subject[index] for index in kept]


def _flops(func: Any, args: tuple[Any, ...], out: Any, kept: Kept | None) -> int:
    """Counted once for equal arguments."""
    if kept is None:
        return operator_flops(func, args, out)
    if kept.flops is None:
        kept.flops = operator_flops(func, args, out)
    return kept.flops


def _traffic(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes that pass through memory where each is read or written once."""
    return sum(tensor.numel() * _element_bytes(tensor) for tensor in tensors)


def _element_bytes(tensor: torch.Tensor) -> int:
    """Of memory traffic; a tensor that stands for another one says what that one's element has."""
    return int(getattr(tensor, STANDS_FOR_BYTES, 0)) or tensor.element_size()


def merge_in_place(raw: RawTrace, pairs: dict[int, tuple[int, int]]) -> None:
    """Undoes out-of-place operators that run in place on a device and are not only because a mode is active.

    The device writes into the first operand when nothing else owns it (`engine_adds.done_in_place`). Sole ownership
    shows in the trace: the old buffer dies before anything else happens. `pairs` maps the result's tensor to (old
    buffer, position after the result).
    """
    alias: dict[int, int] = {}
    drop: set[int] = set()
    for fresh, (old, position) in pairs.items():
        index = position
        while index < len(raw.kind) and raw.kind[index] in (Kind.FREE, Kind.OPERATOR):
            if raw.kind[index] == Kind.FREE and raw.subject[index] == old:
                drop.update((position - 1, index))
                alias[fresh] = old
                break
            index += 1
    if not alias:
        return

    def root(tid: int) -> int:
        while tid in alias:
            tid = alias[tid]
        return tid

    for fresh in alias:
        tensor = raw.tensors[fresh]
        if tensor.parameter >= 0:
            raw.tensors[root(fresh)].parameter = tensor.parameter
            raw.tensors[root(fresh)].category = tensor.category
            raw.tensors[root(fresh)].name = tensor.name
    kept = [tid for tid in range(len(raw.tensors)) if tid not in alias]
    place = {tid: position for position, tid in enumerate(kept)}
    renumbered = [place[root(tid)] for tid in range(len(raw.tensors))]
    raw.tensors = [raw.tensors[tid] for tid in kept]
    keep = [index for index in range(len(raw.kind)) if index not in drop]
    raw.subject = [
        renumbered[raw.subject[index]] if raw.kind[index] in (Kind.ALLOC, Kind.FREE) else raw.subject[index]
        for index in keep
    ]
    raw.kind = [raw.kind[index] for index in keep]
    for operator in raw.operators:
        operator.reads = tuple(renumbered[tid] if tid >= 0 else -1 for tid in operator.reads)
        operator.writes = tuple(renumbered[tid] if tid >= 0 else -1 for tid in operator.writes)
