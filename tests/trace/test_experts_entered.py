"""Casts of what experts take, where FSDP2 makes experts a unit: they go back behind the unit's last gradient."""

import numpy as np

from gpu_plan.planner.trace.events import Kind
from gpu_plan.planner.workload.training import Precision
from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import trace_of

EXPERTS = "model.layers.1.mlp.experts"


def test_backward_leaves_experts_once_and_before_their_casts() -> None:
    """Equal to two gloo ranks, on which the peak was 320 bytes lower than replayed before."""
    case = RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, precision=Precision("bf16-mixed"))
    trace = trace_of(case)
    experts, around = trace.modules.index(EXPERTS), trace.modules.index(EXPERTS.rpartition(".")[0])
    left = np.flatnonzero((trace.kind == Kind.BACKWARD_EXIT) & (trace.subject == experts))
    assert len(left) == 1
    own = [i for i, parameter in enumerate(trace.parameters) if parameter.module == EXPERTS]
    gradients = np.flatnonzero((trace.kind == Kind.GRADIENT) & np.isin(trace.subject, own))
    assert len(gradients) == len(own) == 2
    assert gradients.max() < left[0]
    behind = [int(i) for i in np.flatnonzero(trace.kind == Kind.ALLOC) if i > left[0]]
    first = int(trace.subject[behind[0]])
    assert trace.operator_names[trace.tensor_operator[first]] == "_to_copy"
    assert trace.tensor_module[first] == around
