"""The traces of a rank's stages as one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_plan.planner.pipeline.places import StageSpan
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, ModuleLayout, StepTrace


def joined(stages: Sequence[tuple[int, StageCut, StepTrace]]) -> tuple[StepTrace, tuple[StageSpan, ...]]:
    """The traces of a rank's stages as one: forwards first, in their order, then backwards, in the other one."""
    stages = [(stage, cut, _without_passages(trace)) for stage, cut, trace in stages]
    if len(stages) == 1:
        stage, cut, trace = stages[0]
        turn = trace.mark_position(Mark.BACKWARD)
        span = StageSpan(
            stage=stage,
            cut=cut,
            forward=(0, turn),
            backward=(turn, trace.num_events),
            weights=_weights_at(trace),
            tensors=(0, trace.num_tensors),
        )
        return trace, (span,)
    traces = [trace for _, _, trace in stages]
    starts = _Starts.of(traces)
    events = _Events(traces, starts)
    return _columns(traces, starts, events), events.spans(stages)


def _weights_at(trace: StepTrace) -> int | None:
    """Where the gradients of the weights begin, of a backward that is split."""
    found = np.flatnonzero((trace.kind == Kind.MARK) & (trace.subject == int(Mark.WEIGHTS)))
    return int(found[0]) if len(found) else None


_OF_MODULES = (Kind.ENTER, Kind.EXIT, Kind.BACKWARD_ENTER, Kind.BACKWARD_EXIT)


def _without_passages(trace: StepTrace) -> StepTrace:
    """Without the passage through what stands for layers of other stages: they may bear the names of layers that are
    here, or in the rank's other stage, and nothing happens in them."""
    kind, subject = trace.kind, trace.subject
    empty = (kind[:-1] == Kind.ENTER) & (kind[1:] == Kind.EXIT) & (subject[:-1] == subject[1:])
    gone = np.isin(kind, _OF_MODULES) & np.isin(subject, subject[:-1][empty])
    return replace(trace, kind=kind[~gone], subject=subject[~gone])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """Where each trace's own begin among those of all."""

    tensors: list[int]
    operators: list[int]
    modules: list[int]
    parameters: list[int]

    @classmethod
    def of(cls, traces: Sequence[StepTrace]) -> "_Starts":
        return cls(
            tensors=_starts([trace.num_tensors for trace in traces]),
            operators=_starts([len(trace.op_name) for trace in traces]),
            modules=_starts([len(trace.modules) for trace in traces]),
            parameters=_starts([len(trace.parameters) for trace in traces]),
        )

    def of_subjects(self) -> dict[Kind, list[int]]:
        """By what an event is of."""
        own = {Kind.OPERATOR: self.operators, Kind.GRADIENT: self.parameters}
        return {
            **dict.fromkeys((Kind.ALLOC, Kind.FREE), self.tensors),
            **own,
            **dict.fromkeys(_OF_MODULES, self.modules),
        }


class _Events:
    """Events of several stages: all forwards, then all backwards, between marks of their own."""

    def __init__(self, traces: Sequence[StepTrace], starts: _Starts) -> None:
        self.kinds: list[IntArray] = []
        self.subjects: list[IntArray] = []
        self._traces = traces
        self._starts = starts
        self._moved = starts.of_subjects()
        self._place = 0
        turns = [trace.mark_position(Mark.BACKWARD) for trace in traces]
        self._mark(Mark.FORWARD)
        forwards = [self._put(index, 0, turn) for index, turn in enumerate(turns)]
        self._mark(Mark.OUTPUTS_BOUND)
        self._mark(Mark.BACKWARD)
        last = len(traces) - 1
        self._weights: dict[int, int | None] = {}
        backwards = [self._put_backward(index, turns[index]) for index in range(last, -1, -1)][::-1]
        self._mark(Mark.BACKWARD_END)
        # The first forward begins with its mark, the last one ends with that of the outputs, and so on.
        forwards[0] = (0, forwards[0][1])
        forwards[-1] = (forwards[-1][0], forwards[-1][1] + 1)
        backwards[last] = (backwards[last][0] - 1, backwards[last][1])
        backwards[0] = (backwards[0][0], self._place)
        self._forwards, self._backwards = forwards, backwards

    def spans(self, stages: Sequence[tuple[int, StageCut, StepTrace]]) -> tuple[StageSpan, ...]:
        """Where each stage's passes and tensors lie."""
        tensors = self._starts.tensors
        return tuple(
            StageSpan(
                stage=stage,
                cut=cut,
                forward=self._forwards[index],
                backward=self._backwards[index],
                weights=self._weights[index],
                tensors=(tensors[index], tensors[index] + trace.num_tensors),
            )
            for index, (stage, cut, trace) in enumerate(stages)
        )

    def _mark(self, point: Mark) -> None:
        self.kinds.append(np.asarray([int(Kind.MARK)], dtype=np.int64))
        self.subjects.append(np.asarray([int(point)], dtype=np.int64))
        self._place += 1

    def _put_backward(self, index: int, turn: int) -> tuple[int, int]:
        """A trace's backward; where its second half begins is kept."""
        trace = self._traces[index]
        at = _weights_at(trace)
        if at is None:
            self._weights[index] = None
            return self._put(index, turn, trace.num_events)
        start, self._weights[index] = self._put(index, turn, at)
        return start, self._put(index, at, trace.num_events)[1]

    def _put(self, index: int, first: int, end: int) -> tuple[int, int]:
        """Events of one trace but for its marks; where they begin and end."""
        trace = self._traces[index]
        kept = np.flatnonzero(trace.kind[first:end] != Kind.MARK) + first
        kind, subject = trace.kind[kept], trace.subject[kept].copy()
        for what, starts in self._moved.items():
            subject[kind == what] += starts[index]
        self.kinds.append(kind)
        self.subjects.append(subject)
        start, self._place = self._place, self._place + len(kept)
        return start, self._place


def _columns(traces: Sequence[StepTrace], starts: _Starts, events: _Events) -> StepTrace:
    """Every column of the traces, one after the other."""
    names = sorted({name for trace in traces for name in trace.operator_names})
    number = {name: index for index, name in enumerate(names)}
    tensors, modules, parameters = starts.tensors, starts.modules, starts.parameters

    def column(name: str, starts: list[int] | None = None) -> IntArray:
        parts = [getattr(trace, name) for trace in traces]
        if starts is None:
            return np.concatenate(parts)
        return np.concatenate([np.where(part >= 0, part + at, part) for part, at in zip(parts, starts, strict=True)])

    def named(name: str) -> IntArray:
        own = [np.asarray([number[word] for word in t.operator_names] or [0], dtype=np.int64) for t in traces]
        return np.concatenate([table[getattr(t, name)] for table, t in zip(own, traces, strict=True)])

    reads, writes = (_starts([len(getattr(t, f"op_{what}")) for t in traces]) for what in ("reads", "writes"))
    return replace(
        traces[0],
        kind=np.concatenate(events.kinds),
        subject=np.concatenate(events.subjects),
        bytes_fixed=column("bytes_fixed"),
        bytes_per_sample=column("bytes_per_sample"),
        category=column("category"),
        tensor_module=column("tensor_module", modules),
        tensor_operator=named("tensor_operator"),
        tensor_shape=[shape for trace in traces for shape in trace.tensor_shape],
        tensor_parameter=column("tensor_parameter", parameters),
        modules=[name for trace in traces for name in trace.modules],
        operator_names=names,
        op_name=named("op_name"),
        op_module=column("op_module", modules),
        op_phase=column("op_phase"),
        op_flops_fixed=np.concatenate([t.op_flops_fixed for t in traces]),
        op_flops_per_sample=np.concatenate([t.op_flops_per_sample for t in traces]),
        op_bytes_fixed=np.concatenate([t.op_bytes_fixed for t in traces]),
        op_bytes_per_sample=np.concatenate([t.op_bytes_per_sample for t in traces]),
        op_reads_at=_offsets([t.op_reads_at for t in traces], reads),
        op_reads=column("op_reads", tensors),
        op_writes_at=_offsets([t.op_writes_at for t in traces], writes),
        op_writes=column("op_writes", tensors),
        parameters=[parameter for trace in traces for parameter in trace.parameters],
        buffer_bytes=[buffer for trace in traces for buffer in trace.buffer_bytes],
        inputs=[entry for trace in traces for entry in trace.inputs],
        layout=_layout([trace.layout for trace in traces]),
        tensor_origin=[],
        host_reads=list(dict.fromkeys(site for trace in traces for site in trace.host_reads)),
        notes=list(dict.fromkeys(note for trace in traces for note in trace.notes)),
    )


def _layout(layouts: list[ModuleLayout]) -> ModuleLayout:
    return replace(
        layouts[0],
        blocks=tuple(block for layout in layouts for block in layout.blocks),
        block_classes=tuple(kind for layout in layouts for kind in layout.block_classes),
        output_embedding=next((found for one in layouts if (found := one.output_embedding)), None),
        input_embedding=next((found for one in layouts if (found := one.input_embedding)), None),
        final_norm=layouts[-1].final_norm,
    )


def _starts(lengths: list[int]) -> list[int]:
    return [int(start) for start in np.concatenate([[0], np.cumsum(lengths)])[:-1]]


def _offsets(columns: list[IntArray], starts: list[int]) -> IntArray:
    parts = [column[:-1] + start for column, start in zip(columns, starts, strict=True)]
    return np.concatenate([*parts, columns[-1][-1:] + starts[-1]])
