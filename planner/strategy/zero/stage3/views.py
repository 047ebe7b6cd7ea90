"""ZeRO-3: which gathered weights autograd keeps although DeepSpeed lets go of them, and which modules are not told.

DeepSpeed frees a gathered parameter by giving it another storage (partition_parameters.py: free_param). autograd saves
a parameter itself without its storage, but a view of one (torch/csrc/autograd/saved_variable.cpp: what is no leaf is
saved as it is) keeps the whole storage until the operator's backward: transformers' experts multiply with transposes
or slices of three-dimensional weights (integrations/moe.py: grouped_mm_experts_forward; the loop of *Experts.forward).
Falcon's linear layers multiply by `self.weight.T` (modeling_falcon.py: FalconLinear.forward), Mamba's mixers by
`dt_proj.weight` and `D[None, :, None]`. torch's linear function is not in question, though its transpose is a view too:
DeepSpeed puts its own in its place, which keeps none. Causal convolutions take the weight of a Conv1d that is never
called without its middle dimension (models/*/modeling_*.py: `self.conv1d.weight.squeeze(1)`).
"""

import numpy as np

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace, numberless
from gpu_plan.planner.trace.remembered import of_trace

_PRODUCTS = frozenset({"_grouped_mm", "mm", "addmm", "bmm", "baddbmm", "linear"})
_LOOKUPS = frozenset({"embedding"})


@of_trace
def viewed_parameters(trace: StepTrace) -> frozenset[int]:
    """Parameters that are used through views: those that the trace names, stacks of matrices that their own module
    multiplies by, and kernels of convolutions that are never called themselves."""
    named = frozenset(trace.layout.viewed)
    multiplying = _modules_with(trace, _PRODUCTS)
    called = {int(module) for module in trace.subject[trace.kind == Kind.ENTER]}
    by_name = {name: index for index, name in enumerate(trace.modules)}

    def through_view(module: int | None) -> bool:
        return module is not None and (module in multiplying or module not in called)

    return frozenset(
        index
        for index, parameter in enumerate(trace.parameters)
        if numberless(parameter.name) in named
        or (len(parameter.shape) > 2 and through_view(by_name.get(parameter.module)))
    )


@of_trace
def read_parameters(trace: StepTrace) -> dict[int, list[int]]:
    """Parameters by the module that reads them while their own does not run, which DeepSpeed then takes for its own.

    parameter_offload.py: ZeROOrderedDict.__getitem__ (register_external_parameter), from the first forward's read on.
    """
    levels: dict[str, list[int]] = {}
    for entry in trace.layout.read:
        name, _, count = entry.rpartition(" ")
        levels.setdefault(name, []).append(int(count))
    by_name = {name: index for index, name in enumerate(trace.modules)}
    found: dict[int, list[int]] = {}
    for index, parameter in enumerate(trace.parameters):
        for level in levels.get(numberless(parameter.name), ()):
            reader = by_name.get(".".join(parameter.name.split(".")[:level]))
            if reader is not None:
                found.setdefault(reader, []).append(index)
    return found


@of_trace
def lookup_modules(trace: StepTrace) -> frozenset[int]:
    """Modules that look rows up by integers: their inputs have no gradient."""
    return _modules_with(trace, _LOOKUPS)


_MODULE_EVENTS = (Kind.ENTER, Kind.EXIT, Kind.BACKWARD_ENTER, Kind.BACKWARD_EXIT, Kind.GRADIENT)


@of_trace
def module_events(trace: StepTrace) -> IntArray:
    """Events at which modules' hooks run, and gradients come."""
    return np.flatnonzero(np.isin(trace.kind, _MODULE_EVENTS))


@of_trace
def recorded_exits(trace: StepTrace) -> frozenset[int]:
    """Events at which a module's forward ends that autograd has recorded: the last one before its backward is over.

    Under checkpointing that is the recomputation's, which may stop early, inside the module.
    """
    ends: dict[int, int] = {}
    found: set[int] = set()
    at = np.flatnonzero(np.isin(trace.kind, (Kind.ENTER, Kind.EXIT, Kind.BACKWARD_EXIT)))
    kinds, subjects = trace.kind[at].tolist(), trace.subject[at].tolist()
    for position, kind, subject in zip(at.tolist(), kinds, subjects, strict=True):
        if kind == Kind.EXIT:
            ends[subject] = position
        elif kind == Kind.ENTER:
            ends.pop(subject, None)
        elif subject in ends:
            found.add(ends[subject])
    return frozenset(found)


def _modules_with(trace: StepTrace, operators: frozenset[str]) -> frozenset[int]:
    """Modules that run one of these operators themselves in forward."""
    if not len(trace.op_name):
        return frozenset()
    named = np.asarray(
        [name.rpartition("::")[2].partition(".")[0] in operators for name in trace.operator_names], dtype=np.bool_
    )
    if not named.any():
        return frozenset()
    return frozenset(trace.op_module[(trace.op_phase == 0) & named[trace.op_name]].tolist())


@of_trace
def packed_in_graph(trace: StepTrace) -> frozenset[int]:
    """Packed 4-bit weights of modules that backward passes through: their products name them in the graph."""
    entered = {trace.modules[int(module)] for module in trace.subject[trace.kind == Kind.BACKWARD_ENTER]}
    return frozenset(
        index
        for index, parameter in enumerate(trace.parameters)
        if not is_floating(parameter.dtype) and parameter.module in entered
    )
