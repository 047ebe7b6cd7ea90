"""A trace in which nothing happens: what a strategy places for it is there whatever the step does."""

import numpy as np

from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.events import Kind, Mark, ModuleLayout, ParameterInfo, StepTrace
from gpu_plan.planner.trace.variant import Regime


def static_trace(spec: ModelSpec, regime: Regime) -> StepTrace:
    """The four points of the loop, the model's parameters, and no tensor."""
    none = np.zeros(0, dtype=np.int64)
    empty = np.zeros(0, dtype=np.float64)
    parameters = [
        ParameterInfo(
            name=p.name,
            shape=p.shape,
            dtype=regime.of(p),
            trainable=p.trainable,
            module=p.name.rpartition(".")[0],
        )
        for p in spec.parameters
        if p.tied_to is None
    ]
    return StepTrace(
        kind=np.full(len(Mark), int(Kind.MARK), dtype=np.int64),
        subject=np.asarray([int(mark) for mark in Mark], dtype=np.int64),
        bytes_fixed=none,
        bytes_per_sample=none,
        category=none,
        tensor_module=none,
        tensor_operator=none,
        tensor_shape=[],
        tensor_parameter=none,
        modules=[""],
        operator_names=[],
        op_name=none,
        op_module=none,
        op_phase=none,
        op_flops_fixed=empty,
        op_flops_per_sample=empty,
        op_bytes_fixed=empty,
        op_bytes_per_sample=empty,
        op_reads_at=np.zeros(1, dtype=np.int64),
        op_reads=none,
        op_writes_at=np.zeros(1, dtype=np.int64),
        op_writes=none,
        parameters=parameters,
        buffer_bytes=[],
        layout=ModuleLayout(hidden_size=spec.hidden_size),
        inputs=[],
        samples=(1, 2**31),
        tokens_per_sample=1,
    )
