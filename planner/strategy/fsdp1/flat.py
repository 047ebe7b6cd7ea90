"""FSDP1's flat parameters: how parameters are strung together, padded and cut into shards."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.dtypes import element_bits, is_floating
from gpu_plan.planner.memory.optimizer.steps import LocalTensor
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.units import ceil_div, round_up
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft

ROOT = ""
# Bytes; _flat_param.py: _get_aligned_numel. Inductor's vector loads want it, and use_orig_params always has it.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatUnit:
    """One FSDP instance that has parameters of its own."""

    module: str
    """The wrapped module; empty for the root."""
    parameters: tuple[int, ...]
    offsets: tuple[int, ...]
    """First element of each parameter in the flat one."""
    flat_numel: int
    """Elements of the flat parameter, a multiple of the world size."""
    shard_numel: int
    dtype: str
    """Type in which it is gathered."""
    trainable: bool
    """Whether any of its parameters is: the flat gradient is then made whole."""

    @property
    def is_root(self) -> bool:
        return self.module == ROOT


def flat_units(
    trace: StepTrace,
    regime: Regime,
    world_size: int,
    peft: Peft = NO_ADAPTERS,
    ignored: frozenset[int] = frozenset(),
    *,
    original: bool = True,
) -> list[FlatUnit]:
    """Wrapped blocks in their order, then the root with everything else but the `ignored` parameters.

    torch/distributed/fsdp/_flat_param.py: _init_flat_param_and_metadata (use_orig_params, here `original`) aligns every
    parameter to 16 bytes of the type in which it is computed with, and the whole to the world size; accelerate's
    TRANSFORMER_BASED_WRAP makes one instance of every block, and peft utils/other.py: fsdp_auto_wrap_policy one of
    every leaf module with a trained weight as well, once there are adapters.
    """
    owned: dict[str, list[int]] = {name: [] for name in (*trace.layout.blocks, *_adapters(trace, peft), ROOT)}
    for index, parameter in enumerate(trace.parameters):
        if index not in ignored:
            owned[_owner(parameter.module, owned)].append(index)
    alignment = _ALIGNMENT if original else 0
    return [
        _unit(trace.parameters, name, found, regime, world_size, alignment) for name, found in owned.items() if found
    ]


def _adapters(trace: StepTrace, peft: Peft) -> list[str]:
    if not peft.adapts:
        return []
    parents = {name.rpartition(".")[0] for name in trace.modules}
    trained = [p.module for p in trace.parameters if p.trainable and p.name == f"{p.module}.weight"]
    return [name for name in trained if name not in parents]


def _owner(module: str, owned: dict[str, list[int]]) -> str:
    while module and module not in owned:
        module = module.rpartition(".")[0]
    return module


def _unit(
    parameters: Sequence[ParameterInfo],
    module: str,
    found: Sequence[int],
    regime: Regime,
    world_size: int,
    alignment: int,
) -> FlatUnit:
    trainable = any(parameters[index].trainable for index in found)
    dtype = regime.trained if trainable else regime.weights
    aligned = max(1, 8 * alignment // element_bits(dtype))
    offsets, end = [], 0
    for index in found:
        end = round_up(end, aligned)
        offsets.append(end)
        end += _elements(parameters[index], dtype)
    flat = round_up(end, world_size)
    return FlatUnit(
        module=module,
        parameters=tuple(found),
        offsets=tuple(offsets),
        flat_numel=flat,
        shard_numel=flat // world_size,
        dtype=dtype,
        trainable=trainable,
    )


def _elements(parameter: ParameterInfo, dtype: str) -> int:
    """Elements of the flat parameter's type that a parameter takes: packed integers are stored as such.

    bitsandbytes' quant_storage names the type; FSDP1 flattens no other beside the rest of a block.
    """
    if is_floating(parameter.dtype):
        return parameter.numel
    return ceil_div(parameter.numel * element_bits(parameter.dtype), element_bits(dtype))


def flat_shards(units: Sequence[FlatUnit], dtype: str) -> list[LocalTensor]:
    """What an optimizer steps that is given the flat parameters themselves: one tensor of each that is trained."""
    return [LocalTensor(name=unit.module, numel=unit.shard_numel, dtype=dtype) for unit in units if unit.trainable]


def first_shard(trace: StepTrace, units: Sequence[FlatUnit], dtype: str) -> list[LocalTensor]:
    """What rank 0's optimizer steps: each trainable parameter's part of the first shard, one-dimensional.

    _flat_param.py: _use_sharded_views gives a parameter outside of the shard no element.
    """
    return [
        LocalTensor(name=trace.parameters[index].name, numel=min(trace.parameters[index].numel, left), dtype=dtype)
        for unit in units
        for index, offset in zip(unit.parameters, unit.offsets, strict=True)
        if (left := unit.shard_numel - offset) > 0 and trace.parameters[index].trainable
    ]
