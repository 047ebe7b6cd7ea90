"""ZeRO-3's layout: partitions of parameters, sub-groups of the optimizer, and which module holds what.

Mirrors deepspeed/runtime/zero/partition_parameters.py: _partition_param; stage3.py: _create_fp16_sub_groups;
parameter_offload.py: mark_persistent_parameters.
"""

from collections.abc import Sequence

import numpy as np

from gpu_plan.planner.dtypes import element_bits, is_floating
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.zero.common import ZeroConfig, model_dtype, optimizer_groups
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_modules, leaf_of
from gpu_plan.planner.strategy.zero.stage3.views import lookup_modules
from gpu_plan.planner.trace.events import Kind, ParameterInfo, StepTrace
from gpu_plan.planner.trace.remembered import of_trace
from gpu_plan.planner.units import ceil_div

_MATRIX_PRODUCTS = ("mm", "addmm", "linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """What every rank holds of a model; all ranks hold the same number of elements."""

    numel: tuple[int, ...]
    """Elements of every parameter."""
    share: tuple[int, ...]
    """Elements of every parameter's partition, padding included."""
    trainable: tuple[int, ...]
    sub_groups: tuple[tuple[int, ...], ...]
    """Parameters that the optimizer steps together."""
    persistent: frozenset[int]
    """Parameters small enough to stay whole between steps."""
    scale: tuple[int, ...] = ()
    """Elements of the engine's type that one element of every parameter takes; none: one throughout."""

    def sub_group_share(self, group: Sequence[int]) -> int:
        """Elements that this rank steps for a sub-group."""
        return sum(self.share[index] for index in group)

    @property
    def owned(self) -> int:
        """Elements of the trainable partitions."""
        return self.sub_group_share(self.trainable)

    @property
    def stored(self) -> int:
        """Room of the trainable weights' partitions, in elements of the engine's type."""
        return sum(self.share[index] * self.scaled(index) for index in self.trainable)

    def scaled(self, index: int) -> int:
        """Elements of the engine's type that one element of a parameter takes."""
        return self.scale[index] if self.scale else 1


def partition(context: RankContext, config: ZeroConfig) -> Partitions:
    """The layout of one configuration."""
    numel = tuple(_elements(parameter, context) for parameter in context.trace.parameters)
    share = tuple(ceil_div(count, context.world_size) for count in numel)
    groups = optimizer_groups(context)
    return Partitions(
        numel=numel,
        share=share,
        trainable=tuple(index for group in groups for index in group),
        sub_groups=tuple(part for group in groups for part in _sub_groups(group, share, config.sub_group)),
        persistent=frozenset(index for index, count in enumerate(numel) if 0 < count <= config.persistence),
        scale=tuple(_scale(parameter, context) for parameter in context.trace.parameters)
        if context.peft.adapts
        else (),
    )


def _elements(parameter: ParameterInfo, context: RankContext) -> int:
    """Elements in the type of the engine; packed 4-bit weights are stored in that type (bnb_4bit_quant_storage)."""
    if is_floating(parameter.dtype):
        return parameter.numel
    return ceil_div(parameter.numel * element_bits(parameter.dtype), element_bits(model_dtype(context.precision)))


def _scale(parameter: ParameterInfo, context: RankContext) -> int:
    """Adapters stay in fp32 as peft made them: zero.Init's model is not cast (engine.py: _cast_module_mixed_precision).

    stage3.py: _create_fp16_partitions_with_defragmentation keeps the partitions' own type (utils.py: defragment).
    """
    if not (parameter.trainable and is_floating(parameter.dtype)):
        return 1
    return max(1, element_bits(parameter.dtype) // element_bits(model_dtype(context.precision)))


def _sub_groups(group: Sequence[int], share: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    if limit >= sum(share[index] for index in group):
        return [tuple(group)]
    parts: list[tuple[int, ...]] = []
    current: list[int] = []
    held = 0
    for index in group:
        current.append(index)
        held += share[index]
        if held >= limit:
            parts.append(tuple(current))
            current, held = [], 0
    return [*parts, tuple(current)] if current else parts


@of_trace
def holders(trace: StepTrace) -> dict[int, list[int]]:
    """Parameters by the module whose hooks gather them.

    A leaf module holds all below it (deepspeed_leaves). A parameter of a module that is never called is gathered by
    its nearest caller (parameter_offload.py: register_external_parameter), unless the step leaves it without a
    gradient: then nobody reads it (ESM-2's contact head). The trace lists tied weights once: a module
    without parameters or children that computes matrix products as large as the model's input embedding is taken to
    use that, and so is one that looks rows up where the embedding's own module is never called (T5's and BART's
    `shared`, of which encoder and decoder have tied copies).
    """
    entered = {int(module) for module in trace.subject[trace.kind == Kind.ENTER]}
    by_name = {name: index for index, name in enumerate(trace.modules)}
    leaves = leaf_modules(trace)
    held: dict[int, list[int]] = {}
    unread = _unread(trace, by_name, entered)
    for index, parameter in enumerate(trace.parameters):
        if parameter.numel and index not in unread:
            holder = leaf_of(parameter.module, leaves) or parameter.module
            held.setdefault(_caller(holder, by_name, entered), []).append(index)
    matrices = [index for index, parameter in enumerate(trace.parameters) if len(parameter.shape) == 2]
    if matrices:
        largest = _embedding(trace, matrices)
        copies = _lookups(trace, entered - held.keys(), trace.parameters[largest].module, by_name, entered)
        if copies:
            rest = {module: [one for one in owned if one != largest] for module, owned in held.items()}
            held = {module: owned for module, owned in rest.items() if owned}
        for module in (*copies, *_tied_users(trace, entered - held.keys(), trace.parameters[largest].numel)):
            held[module] = [largest]
    return held


def _unread(trace: StepTrace, by_name: dict[str, int], entered: set[int]) -> frozenset[int]:
    """Trained parameters of modules that are never called which get no gradient, where others get one."""
    graded = {int(parameter) for parameter in trace.subject[trace.kind == Kind.GRADIENT]}
    return frozenset(
        index
        for index, parameter in enumerate(trace.parameters)
        if graded and parameter.trainable and index not in graded and by_name.get(parameter.module) not in entered
    )


def _lookups(
    trace: StepTrace, candidates: set[int], module: str, by_name: dict[str, int], entered: set[int]
) -> list[int]:
    """Modules without parameters that look rows up, where the embedding's own module is never called."""
    return [] if by_name.get(module) in entered else sorted(candidates & lookup_modules(trace))


def _embedding(trace: StepTrace, matrices: Sequence[int]) -> int:
    """The input embedding, where the model names it and it is a matrix; else the largest matrix."""
    for index in matrices:
        if trace.layout.input_embedding and trace.parameters[index].module == trace.layout.input_embedding:
            return index
    return max(matrices, key=lambda index: trace.parameters[index].numel)


def _caller(name: str, by_name: dict[str, int], entered: set[int]) -> int:
    while name:
        index = by_name.get(name)
        if index is not None and index in entered:
            return index
        name = name.rpartition(".")[0]
    return 0


def _tied_users(trace: StepTrace, candidates: set[int], numel: int) -> list[int]:
    parents = {name.rpartition(".")[0] for name in trace.modules if name}
    product = np.asarray(
        [name.rpartition("::")[2].partition(".")[0] in _MATRIX_PRODUCTS for name in trace.operator_names]
    )
    if not len(trace.op_name) or not product.any():
        return []
    forward = (trace.op_phase == 0) & product[trace.op_name]
    flops = trace.op_flops_fixed + trace.op_flops_per_sample
    found = []
    for module in sorted(candidates):
        if trace.modules[module] in parents:
            continue
        if float(flops[forward & (trace.op_module == module)].sum()) >= 2 * numel:
            found.append(module)
    return found
