"""FSDP1's flat parameters: how parameters are strung together, padded and cut into shards."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.dtypes import element_bits
from planner.memory.optimizer import LocalTensor
from planner.trace.events import ParameterInfo, StepTrace
from planner.units import round_up

ROOT = ""
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
    trainable: bool
    """Whether any of its parameters is: the flat gradient is then made whole."""

    @property
    def is_root(self) -> bool:
        return self.module == ROOT


def flat_units(trace: StepTrace, dtype: str, world_size: int) -> list[FlatUnit]:
    """Wrapped blocks in their order, then the root with everything else.

    torch/distributed/fsdp/_flat_param.py: _init_flat_param_and_metadata (use_orig_params) aligns every parameter to
    16 bytes of the type in which it is computed with, and the whole to the world size; accelerate's
    TRANSFORMER_BASED_WRAP makes one instance of every block.
    """
    owned: dict[str, list[int]] = {name: [] for name in (*trace.layout.blocks, ROOT)}
    for index, parameter in enumerate(trace.parameters):
        owned[_owner(parameter.module, owned)].append(index)
    aligned = max(1, 8 * _ALIGNMENT // element_bits(dtype))
    return [_unit(trace.parameters, name, found, aligned, world_size) for name, found in owned.items() if found]


def _owner(module: str, owned: dict[str, list[int]]) -> str:
    while module and module not in owned:
        module = module.rpartition(".")[0]
    return module


def _unit(
    parameters: Sequence[ParameterInfo], module: str, found: Sequence[int], aligned: int, world_size: int
) -> FlatUnit:
    offsets, end = [], 0
    for index in found:
        end = round_up(end, aligned)
        offsets.append(end)
        end += parameters[index].numel
    flat = round_up(end, world_size)
    return FlatUnit(
        module=module,
        parameters=tuple(found),
        offsets=tuple(offsets),
        flat_numel=flat,
        shard_numel=flat // world_size,
        trainable=any(parameters[index].trainable for index in found),
    )


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
