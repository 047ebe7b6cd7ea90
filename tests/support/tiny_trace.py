"""A small valid step by hand: modules in a chain, one parameter each, an activation and a gradient per module."""

from collections.abc import Sequence

import numpy as np

from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind, Mark, ParameterInfo, StepTrace

ACTIVATION = 1024
"""Bytes per sample of what every module puts out."""


def tiny_trace(shapes: Sequence[tuple[int, ...]], *, element_bytes: int = 2, frozen: Sequence[int] = ()) -> StepTrace:
    """One module per parameter of the given shapes, run in order and backwards; `frozen` ones get no gradient."""
    parameters = [
        ParameterInfo(name=f"m{i}.weight", shape=tuple(s), dtype="float32", trainable=i not in frozen, module=f"m{i}")
        for i, s in enumerate(shapes)
    ]
    count = len(parameters)
    events: list[tuple[int, int]] = [(Kind.MARK, Mark.FORWARD), (Kind.ENTER, 0)]
    for i in range(count):
        events += [(Kind.ENTER, i + 1), (Kind.ALLOC, i), (Kind.EXIT, i + 1)]
    events += [(Kind.EXIT, 0), (Kind.MARK, Mark.OUTPUTS_BOUND), (Kind.MARK, Mark.BACKWARD), (Kind.BACKWARD_ENTER, 0)]
    for i in reversed(range(count)):
        events.append((Kind.BACKWARD_ENTER, i + 1))
        if parameters[i].trainable:
            events += [(Kind.ALLOC, count + i), (Kind.GRADIENT, i)]
        events += [(Kind.FREE, i), (Kind.BACKWARD_EXIT, i + 1)]
    events += [(Kind.BACKWARD_EXIT, 0), (Kind.MARK, Mark.BACKWARD_END)]
    kind, subject = (np.array(column, np.int64) for column in zip(*events, strict=True))
    none, nothing = np.zeros(0, np.int64), np.zeros(0, np.float64)
    return StepTrace(
        kind=kind,
        subject=subject,
        bytes_fixed=np.array([0] * count + [p.numel * element_bytes for p in parameters], np.int64),
        bytes_per_sample=np.array([ACTIVATION] * count + [0] * count, np.int64),
        category=np.array(
            [CATEGORY_INDEX[Category.ACTIVATIONS]] * count + [CATEGORY_INDEX[Category.GRADIENTS]] * count, np.int64
        ),
        tensor_module=np.array([*range(1, count + 1)] * 2, np.int64),
        tensor_operator=np.zeros(2 * count, np.int64),
        tensor_shape=["[]"] * (2 * count),
        tensor_parameter=np.array([-1] * count + list(range(count)), np.int64),
        modules=["", *(f"m{i}" for i in range(count))],
        operator_names=["mm"],
        op_name=none,
        op_module=none,
        op_phase=none,
        op_flops_fixed=nothing,
        op_flops_per_sample=nothing,
        op_bytes_fixed=nothing,
        op_bytes_per_sample=nothing,
        op_reads_at=np.zeros(1, np.int64),
        op_reads=none,
        op_writes_at=np.zeros(1, np.int64),
        op_writes=none,
        parameters=parameters,
        buffer_bytes=[],
        inputs=[("input_ids", 64, 0)],
        samples=(1,),
        tokens_per_sample=8,
    )
