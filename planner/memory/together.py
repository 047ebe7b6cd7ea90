"""Several models on one simulated device: what lies beside a training run, and what they do in phases of their own.

A model's own stream gives what stands of it between iterations (`rest_of`) and what one pass or one iteration makes
and gives back (`window_of`); `Together` puts both into the stream of the model that is searched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.stream.traced import carried_storages
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray

OWNED = ": "
"""Between the name of a model and the module of a storage."""
_PER_PROCESS = ("cuBLAS workspace", "Transformer Engine's workspace", "buffer that stays")
"""Begin the labels of what a process makes once, whatever models it runs."""
_MASTER = "fp32 weights, "
"""Begins the labels of masters that stand behind 16-bit weights: the optimizer's, though they are parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storages:
    """Columns of storages; bytes as they are asked for."""

    fixed: IntArray
    category: IntArray
    cuda_stream: IntArray
    labels: tuple[str, ...]
    modules: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return int(self.fixed.sum())

    def part(self, rows: NDArray[np.bool_]) -> "Storages":
        """Those of some rows."""
        numbers = np.flatnonzero(rows).tolist()
        return Storages(
            fixed=self.fixed[rows],
            category=self.category[rows],
            cuda_stream=self.cuda_stream[rows],
            labels=tuple(self.labels[number] for number in numbers),
            modules=tuple(self.modules[number] for number in numbers),
        )

    def computing(self) -> NDArray[np.bool_]:
        """Rows that a pass without gradients needs: parameters, without an optimizer's masters, and buffers."""
        kinds = [CATEGORY_INDEX[kind] for kind in (Category.PARAMETERS, Category.BUFFERS)]
        masters = np.asarray([label.startswith(_MASTER) for label in self.labels], dtype=np.bool_)
        found: NDArray[np.bool_] = np.isin(self.category, kinds) & ~masters.reshape(len(self.labels))
        return found

    def optimizing(self) -> NDArray[np.bool_]:
        """Rows that an optimizer keeps: its states, and masters behind 16-bit weights."""
        masters = np.asarray([label.startswith(_MASTER) for label in self.labels], dtype=np.bool_)
        found: NDArray[np.bool_] = (self.category == CATEGORY_INDEX[Category.OPTIMIZER_STATE]) | masters.reshape(
            len(self.labels)
        )
        return found

    def gradients(self) -> NDArray[np.bool_]:
        """Rows of gradients."""
        found: NDArray[np.bool_] = self.category == CATEGORY_INDEX[Category.GRADIENTS]
        return found

    def owned(self, role: str) -> "Storages":
        """The same as a model's of that name."""
        return replace(self, modules=tuple(f"{role}{OWNED}{module}" for module in self.modules))

    def joined(self, other: "Storages") -> "Storages":
        """These, then the others."""
        return Storages(
            fixed=np.concatenate([self.fixed, other.fixed]),
            category=np.concatenate([self.category, other.category]),
            cuda_stream=np.concatenate([self.cuda_stream, other.cuda_stream]),
            labels=(*self.labels, *other.labels),
            modules=(*self.modules, *other.modules),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a model makes and gives back between two moments at rest: every storage of it is gone at the end."""

    signs: IntArray
    tensors: IntArray
    """Rows of `storages`."""
    storages: Storages

    def owned(self, role: str) -> "Window":
        """The same as a model's of that name."""
        return replace(self, storages=self.storages.owned(role))


def made(sizes: Iterable[tuple[int, Category, str]]) -> Storages:
    """Storages that no trace holds: bytes, category, label."""
    rows = [row for row in sizes if row[0] > 0]
    return Storages(
        fixed=np.asarray([row[0] for row in rows], dtype=np.int64),
        category=np.asarray([CATEGORY_INDEX[row[1]] for row in rows], dtype=np.int64),
        cuda_stream=np.zeros(len(rows), dtype=np.int64),
        labels=tuple(row[2] for row in rows),
        modules=("",) * len(rows),
    )


def rest_of(stream: RankStream, micro_batch: int) -> tuple[IntArray, Storages]:
    """What stands between iterations but for batch, outputs and what is the process's: numbers and storages."""
    alive = _alive(stream) & ~_loops_own(stream)
    traced = stream.trace.num_tensors * stream.num_passes
    own = [not label.startswith(_PER_PROCESS) for label in stream.labels]
    alive[traced:] &= np.asarray(own, dtype=np.bool_).reshape(len(own))
    numbers = np.flatnonzero(alive)
    return numbers, _storages(stream, numbers, micro_batch)


def left_by(stream: RankStream) -> IntArray:
    """Batch and outputs that the loop still names when its last iteration is over."""
    return np.flatnonzero(_alive(stream) & _loops_own(stream))


def _alive(stream: RankStream) -> NDArray[np.bool_]:
    upto = stream.event_segment <= stream.step_segments[-1]
    counts = np.bincount(stream.event_tensor[upto], weights=stream.event_sign[upto], minlength=len(stream.fixed))
    alive: NDArray[np.bool_] = counts > 0
    return alive


def _loops_own(stream: RankStream) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = stream.category == CATEGORY_INDEX[Category.INPUTS]
    carried = carried_storages(stream.trace)
    for number in range(stream.num_passes):
        found[carried + number * stream.trace.num_tensors] = True
    return found


def window_of(stream: RankStream, micro_batch: int, inside: NDArray[np.bool_]) -> Window:
    """The events of a stream that `inside` marks, as far as they are about storages made there; all are given back."""
    signs, tensors = stream.event_sign[inside], stream.event_tensor[inside]
    created = np.zeros(len(stream.fixed), dtype=np.bool_)
    created[tensors[signs > 0]] = True
    # The process has its workspaces already.
    traced = stream.trace.num_tensors * stream.num_passes
    theirs = [number for number, label in enumerate(stream.labels) if label.startswith(_PER_PROCESS)]
    created[np.asarray(theirs, dtype=np.int64) + traced] = False
    kept = created[tensors]
    signs, tensors = signs[kept], tensors[kept]
    numbers = np.flatnonzero(created)
    left = numbers[np.bincount(tensors, weights=signs, minlength=len(stream.fixed))[numbers] > 0]
    row = np.zeros(len(stream.fixed), dtype=np.int64)
    row[numbers] = np.arange(len(numbers))
    return Window(
        signs=np.concatenate([signs, np.full(len(left), -1, dtype=np.int64)]),
        tensors=np.concatenate([row[tensors], row[left]]),
        storages=_storages(stream, numbers, micro_batch),
    )


def second_pass(stream: RankStream) -> NDArray[np.bool_]:
    """Forward of the last micro step: what a pass takes once all that is made once stands."""
    inside: NDArray[np.bool_] = (stream.event_segment == stream.pass_segments[-1]) & ~stream.event_in_backward
    return inside


def second_iteration(stream: RankStream) -> NDArray[np.bool_]:
    """Passes and optimizer step of the second iteration, in which the optimizer's state stands from the start."""
    first, last = stream.step_segments[-2], stream.step_segments[-1]
    inside: NDArray[np.bool_] = (stream.event_segment > first) & (stream.event_segment <= last)
    return inside


def after_load(stream: RankStream) -> NDArray[np.bool_]:
    """All but the load."""
    inside: NDArray[np.bool_] = stream.event_segment > 0
    return inside


def _storages(stream: RankStream, numbers: IntArray, micro_batch: int) -> Storages:
    """Columns of some storages of a stream, with what describes them."""
    trace = stream.trace
    traced = trace.num_tensors * stream.num_passes
    labels, modules = [], []
    for number in numbers.tolist():
        if number >= traced:
            labels.append(stream.labels[number - traced])
            modules.append(stream.label_modules[number - traced])
        else:
            index = number % trace.num_tensors
            labels.append(trace.operator_names[int(trace.tensor_operator[index])])
            modules.append(trace.modules[int(trace.tensor_module[index])])
    return Storages(
        fixed=stream.requested(micro_batch)[numbers],
        category=stream.category[numbers],
        cuda_stream=stream.cuda_stream[numbers],
        labels=tuple(labels),
        modules=tuple(modules),
    )


@dataclass(slots=True)
class _Events:
    signs: list[IntArray] = field(default_factory=list)
    tensors: list[IntArray] = field(default_factory=list)
    segments: list[IntArray] = field(default_factory=list)

    def add(self, sign: int | IntArray, tensors: IntArray, segment: int) -> None:
        self.signs.append(np.broadcast_to(np.asarray(sign, dtype=np.int64), tensors.shape))
        self.tensors.append(tensors)
        self.segments.append(np.full(len(tensors), segment, dtype=np.int64))

    def columns(self) -> tuple[IntArray, IntArray, IntArray]:
        none = np.zeros(0, dtype=np.int64)
        whole = [np.concatenate([none, *column]) for column in (self.signs, self.tensors, self.segments)]
        return whole[0], whole[1], whole[2]


class Together:
    """A training run with what lies beside it from the start, and phases behind it."""

    def __init__(self, training: RankStream) -> None:
        self._training = training
        self._count = len(training.fixed)
        self._added: list[Storages] = []
        self._before, self._behind = _Events(), _Events()
        self._segment = int(max(training.event_segment.max(initial=0), training.step_segments[-1]))
        self._between: list[tuple[int, Phase]] = list(training.between)
        self._names: list[tuple[int, str]] = list(training.names)

    def beside(self, storages: Storages) -> IntArray:
        """They stand from the start, before the model that is searched is loaded."""
        numbers = self._placed(storages)
        self._before.add(1, numbers, 0)
        return numbers

    def begin(self, phase: Phase, name: str) -> None:
        """Another phase, behind all others."""
        self._segment += 1
        self._between.append((self._segment, phase))
        self._names.append((self._segment, name))

    def bring(self, storages: Storages) -> IntArray:
        """They are made in the phase that runs."""
        numbers = self._placed(storages)
        self._behind.add(1, numbers, self._segment)
        return numbers

    def send(self, numbers: IntArray) -> None:
        """They go."""
        self._behind.add(-1, numbers, self._segment)

    def play(self, window: Window) -> None:
        """What a model makes and gives back."""
        first = int(self._placed(window.storages)[0]) if len(window.storages.labels) else 0
        self._behind.add(window.signs, window.tensors + first, self._segment)

    def _placed(self, storages: Storages) -> IntArray:
        first, self._count = self._count, self._count + len(storages.labels)
        self._added.append(storages)
        return np.arange(first, self._count)

    def build(self) -> RankStream:
        """The stream of all of them."""
        training = self._training
        front, back = self._before.columns(), self._behind.columns()
        ahead, behind = len(front[0]), len(back[0])
        none = np.zeros(0, dtype=np.int64)

        def column(own: IntArray, name: str) -> IntArray:
            return np.concatenate([own, none, *(getattr(one, name) for one in self._added)])

        return replace(
            training,
            event_sign=np.concatenate([front[0], training.event_sign, back[0]]),
            event_tensor=np.concatenate([front[1], training.event_tensor, back[1]]),
            event_segment=np.concatenate([front[2], training.event_segment, back[2]]),
            event_return=_returns(training, ahead, behind),
            history=None if training.history is None else training.history.behind(ahead),
            event_in_backward=np.concatenate(
                [np.zeros(ahead, np.bool_), training.event_in_backward, np.zeros(behind, np.bool_)]
            ),
            fixed=column(training.fixed, "fixed"),
            per_sample=np.concatenate([training.per_sample, np.zeros(self._count - len(training.fixed), np.int64)]),
            cuda_stream=column(training.cuda_stream, "cuda_stream"),
            category=column(training.category, "category"),
            labels=[*training.labels, *(label for one in self._added for label in one.labels)],
            label_modules=[*training.label_modules, *(module for one in self._added for module in one.modules)],
            between=tuple(self._between),
            names=tuple(self._names),
        )


def _returns(training: RankStream, ahead: int, behind: int) -> IntArray | None:
    """What is added comes back at once."""
    if training.event_return is None:
        return None
    rows, count = training.event_return.shape
    first = np.tile(np.arange(ahead), (rows, 1))
    last = np.tile(np.arange(ahead + count, ahead + count + behind), (rows, 1))
    return np.concatenate([first, training.event_return + ahead, last], axis=1)


def owners(stream: RankStream, roles: Sequence[str]) -> IntArray:
    """For every storage the model that it belongs to: a place in `roles`, whose first is the one that is searched."""
    place = {role: index for index, role in enumerate(roles)}
    traced = stream.trace.num_tensors * stream.num_passes
    found = np.zeros(len(stream.fixed), dtype=np.int64)
    for index, module in enumerate(stream.label_modules):
        role, owned, _ = module.partition(OWNED)
        if owned and role in place:
            found[traced + index] = place[role]
    return found
