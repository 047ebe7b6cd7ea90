"""The traces of a rank's stages as one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_plan.planner.pipeline.places import StageSpan
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, ModuleLayout, StepTrace


def joined(stages: Sequence[tuple[int, StageCut, StepTrace]]) -> tuple[StepTrace, tuple[StageSpan, ...]]:
    """The traces of a rank's stages as one: forwards first, in their order, then backwards, in the other one."""
    if len(stages) == 1:
        stage, cut, trace = stages[0]
        turn = trace.mark_position(Mark.BACKWARD)
        span = StageSpan(
            stage=stage,
            cut=cut,
            forward=(0, turn),
            backward=(turn, trace.num_events),
            tensors=(0, trace.num_tensors),
        )
        return trace, (span,)
    both = _Joined(stages)
    return both.trace, both.spans


class _Joined:
    """Several stages' traces, one after the other in every column."""

    def __init__(self, stages: Sequence[tuple[int, StageCut, StepTrace]]) -> None:
        traces = [trace for _, _, trace in stages]
        tensors, operators = _starts([t.num_tensors for t in traces]), _starts([len(t.op_name) for t in traces])
        modules, parameters = _starts([len(t.modules) for t in traces]), _starts([len(t.parameters) for t in traces])
        names = sorted({name for trace in traces for name in trace.operator_names})
        number = {name: index for index, name in enumerate(names)}
        kinds: list[IntArray] = []
        subjects: list[IntArray] = []
        place = 0

        def mark(point: Mark) -> None:
            nonlocal place
            kinds.append(np.asarray([int(Kind.MARK)], dtype=np.int64))
            subjects.append(np.asarray([int(point)], dtype=np.int64))
            place += 1

        def put(index: int, first: int, end: int) -> tuple[int, int]:
            nonlocal place
            trace = traces[index]
            kept = np.flatnonzero(trace.kind[first:end] != Kind.MARK) + first
            kind, subject = trace.kind[kept], trace.subject[kept].copy()
            moved = {
                Kind.ALLOC: tensors, Kind.FREE: tensors, Kind.OPERATOR: operators, Kind.GRADIENT: parameters,
                Kind.ENTER: modules, Kind.EXIT: modules, Kind.BACKWARD_ENTER: modules, Kind.BACKWARD_EXIT: modules,
            }  # fmt: skip
            for what, starts in moved.items():
                subject[kind == what] += starts[index]
            kinds.append(kind)
            subjects.append(subject)
            start, place = place, place + len(kept)
            return start, place

        turns = [trace.mark_position(Mark.BACKWARD) for trace in traces]
        mark(Mark.FORWARD)
        forwards = [put(index, 0, turns[index]) for index in range(len(traces))]
        mark(Mark.OUTPUTS_BOUND)
        mark(Mark.BACKWARD)
        backwards: dict[int, tuple[int, int]] = {}
        for index in reversed(range(len(traces))):
            backwards[index] = put(index, turns[index], traces[index].num_events)
        mark(Mark.BACKWARD_END)
        # The first forward begins with its mark, the last one ends with that of the outputs, and so on.
        forwards[0] = (0, forwards[0][1])
        forwards[-1] = (forwards[-1][0], forwards[-1][1] + 1)
        last = len(traces) - 1
        backwards[last] = (backwards[last][0] - 1, backwards[last][1])
        backwards[0] = (backwards[0][0], place)
        self.spans = tuple(
            StageSpan(
                stage=stage,
                cut=cut,
                forward=forwards[index],
                backward=backwards[index],
                tensors=(tensors[index], tensors[index] + trace.num_tensors),
            )
            for index, (stage, cut, trace) in enumerate(stages)
        )

        def column(name: str, starts: list[int] | None = None) -> IntArray:
            parts = [getattr(trace, name) for trace in traces]
            if starts is None:
                return np.concatenate(parts)
            return np.concatenate(
                [np.where(part >= 0, part + at, part) for part, at in zip(parts, starts, strict=True)]
            )

        def named(name: str) -> IntArray:
            own = [np.asarray([number[word] for word in t.operator_names] or [0], dtype=np.int64) for t in traces]
            return np.concatenate([table[getattr(t, name)] for table, t in zip(own, traces, strict=True)])

        reads, writes = (_starts([len(getattr(t, f"op_{what}")) for t in traces]) for what in ("reads", "writes"))
        base = traces[0]
        self.trace = replace(
            base,
            kind=np.concatenate(kinds),
            subject=np.concatenate(subjects),
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
