"""What FSDP1 allocates before the first forward: each unit moved, flattened and cut, and its buffers sized once.

Mirrors torch/distributed/fsdp (torch 2.13): _init_utils.py (_init_param_handle_from_module, _move_states_to_device,
_sync_module_params_and_buffers), torch/csrc/distributed/c10d/reducer.cpp (broadcast_coalesced), _flat_param.py
(flatten_tensors, shard, init_flat_param_attributes), _runtime_utils.py (_share_state_and_init_handle_attrs); and
accelerate 1.15 accelerator.py: prepare_model, which upcasts trained flat parameters once all are made, and
utils/dataclasses.py: sync_module_states, which loading on rank 0 alone brings along.

Nothing of it lasts but the shards; the allocator keeps the segments, and the step lives in what is left of them.
"""

from collections.abc import Iterator, Sequence

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit
from gpu_plan.planner.trace.events import Category, Mark, ParameterInfo
from gpu_plan.planner.units import MIB

MOVED = "parameter, before it is flattened"
FLAT = "flat parameter, before it is cut"
SHARD = "flat parameter shard"
BROADCAST = "broadcast of what rank 0 loaded"
_BUCKET = 250 * MIB
"""_init_utils.py: PARAM_BROADCAST_BUCKET_SIZE."""
_IN_FLIGHT = 2
"""broadcast_coalesced keeps at most two, for the sake of large tensors."""
_SIZED = "storage that is made to be freed (init_flat_param_attributes)"


def place_wrapping(
    builder: StreamBuilder,
    units: Sequence[FlatUnit],
    master: str,
    *,
    adapters: bool,
    broadcast_waits: bool = False,
    leaves: bool = False,
) -> dict[str, Handle]:
    """Wraps unit by unit; what stays are the shards, those that are trained in `master`.

    A model is loaded in the types that it computes in; peft makes adapters in fp32 from the start. `broadcast_waits`:
    buckets come back only once the GPU is through (torch before 2.8: ProcessGroupNCCL recorded its stream), which it
    is when the next unit's first parameter has been copied. Returns the shards from before an upcast by unit: the
    parameters remain views into them until the unit is first resharded (_flat_param.py: _use_sharded_views). `leaves`:
    each shard moves to host memory once it is cut (_init_utils.py: _init_param_handle_from_params).
    """
    upcast, waiting = [], Waiting(builder, holds=broadcast_waits)
    for unit in wrapping_order(units):
        shard = _wrap(builder, unit, master if unit.trainable and adapters else unit.dtype, waiting)
        if leaves:
            builder.free(builder.at_load(), shard)
        elif unit.trainable and not adapters and unit.dtype != master:
            upcast.append((unit, shard))
    waiting.end()
    for unit, _ in upcast:
        builder.alloc(builder.at_load(), nbytes(unit.shard_numel, master), Category.PARAMETERS, SHARD, unit.module)
    return {unit.module: shard for unit, shard in upcast}


def place_shards(builder: StreamBuilder, units: Sequence[FlatUnit], master: str) -> None:
    """What stays of the wrapping, and nothing that passes: a lower bound where units are not known."""
    for unit in units:
        size = nbytes(unit.shard_numel, master if unit.trainable else unit.dtype)
        builder.alloc(builder.at_load(), size, Category.PARAMETERS, SHARD, unit.module)


class Waiting:
    """Freed blocks of broadcasts, which may have to wait for the GPU."""

    def __init__(self, builder: StreamBuilder, *, holds: bool) -> None:
        self._builder, self._holds = builder, holds
        self._freed: list[Handle] = []

    def free(self, handle: Handle) -> None:
        self._freed.append(handle)
        if not self._holds:
            self.end()

    def end(self) -> None:
        """The GPU is through."""
        self._builder.free_each(self._builder.at_load(), self._freed)
        self._freed = []


def wrapping_order(units: Sequence[FlatUnit]) -> Iterator[FlatUnit]:
    """wrap.py: _recursive_wrap makes the instances inside a module before its own, the root's last."""
    blocks = [unit for unit in units if not unit.is_root]
    inside: dict[str, list[FlatUnit]] = {}
    names = {unit.module for unit in blocks}
    for unit in blocks:
        inside.setdefault(_around(unit.module, names), []).append(unit)
    for unit in inside.get("", []):
        yield from inside.get(unit.module, [])
        yield unit
    yield from (unit for unit in units if unit.is_root)


def _around(module: str, names: set[str]) -> str:
    """The wrapped module around another; empty where there is none but the root."""
    outer = module.rpartition(".")[0]
    while outer and outer not in names:
        outer = outer.rpartition(".")[0]
    return outer


def _wrap(builder: StreamBuilder, unit: FlatUnit, dtype: str, waiting: Waiting) -> Handle:
    """The parameters come to the device one by one, are strung together and cut; returns the shard."""

    def alloc(size: int, label: str) -> Handle:
        return builder.alloc(builder.at_load(), size, Category.PARAMETERS, label, unit.module)

    parameters = [builder.trace.parameters[index] for index in unit.parameters]
    moved = {}
    for parameter in sorted(parameters, key=_depth):
        moved[parameter.name] = alloc(_bytes(parameter, dtype), MOVED)
        waiting.end()
    _broadcast(builder, [_bytes(parameter, dtype) for parameter in parameters], unit.module, waiting)
    flat = alloc(nbytes(unit.flat_numel, dtype), FLAT)
    shard = alloc(nbytes(unit.shard_numel, dtype), SHARD)
    builder.free(builder.at_load(), flat)
    # use_orig_params: a parameter holds its own storage until it becomes a view into the shard.
    builder.free_each(builder.at_load(), [moved[parameter.name] for parameter in parameters])
    return shard


def _depth(parameter: ParameterInfo) -> int:
    """Modules are gone through level by level, and in their order on each."""
    return parameter.module.count(".")


def _broadcast(builder: StreamBuilder, sizes: Sequence[int], module: str, waiting: Waiting) -> None:
    """Rank 0's values go out bucket by bucket, two of them on the way at a time; a bucket of one tensor is a view."""
    in_flight: list[Handle] = []
    for bucket in _buckets(sizes):
        if len(in_flight) == _IN_FLIGHT:
            waiting.free(in_flight.pop(0))
        size = sum(bucket) if len(bucket) > 1 else 0
        in_flight.append(builder.alloc(builder.at_load(), size, Category.COMMUNICATION, BROADCAST, module))
    for handle in in_flight:
        waiting.free(handle)


def _buckets(sizes: Sequence[int]) -> Iterator[list[int]]:
    """reducer.cpp: compute_bucket_assignment_by_size closes a bucket once it has reached the limit."""
    bucket: list[int] = []
    for size in sizes:
        bucket.append(size)
        if sum(bucket) >= _BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _bytes(parameter: ParameterInfo, dtype: str) -> int:
    return nbytes(parameter.numel, dtype if is_floating(parameter.dtype) else parameter.dtype)


def place_first_use(builder: StreamBuilder, units: Sequence[FlatUnit], master: str) -> None:
    """Lazy initialisation as the first forward begins: the root's handle first, then the others'.

    Each makes the tensors that it will gather into and takes their storage away again, under mixed precision one of
    the whole unit in full precision among them.
    """
    for unit in sorted(units, key=lambda unit: not unit.is_root):
        stored = master if unit.trainable else unit.dtype
        sizes = [nbytes(unit.flat_numel, unit.dtype)]
        if stored != unit.dtype:
            sizes = [nbytes(unit.shard_numel, unit.dtype), *sizes, nbytes(unit.flat_numel, stored)]
        at = builder.at_mark(builder.passes[0], Mark.FORWARD)
        for size in sizes:
            builder.free(at, builder.alloc(at, size, Category.COMMUNICATION, _SIZED, unit.module))
