"""FSDP2's parameter groups: which modules are gathered together, and how a parameter is cut into shards.

Mirrors accelerate utils/fsdp_utils.py: fsdp2_prepare_model; torch/distributed/fsdp/_fully_shard (torch 2.13):
_fsdp_init.py (_get_managed_modules), _fsdp_param.py (_init_sharded_param).
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.remembered import of_trace
from gpu_plan.planner.units import ceil_div

ROOT = ""


@dataclass(slots=True, kw_only=True)
class Unit:
    """One FSDP parameter group."""

    name: str
    modules: tuple[str, ...]
    reshard_after_forward: bool
    parameters: list[int] = field(default_factory=list)
    experts: bool = False
    """Whether it holds this rank's own experts, sharded over the ranks that hold the same ones."""


Wrapping = Callable[[StepTrace, bool], list[Unit]]
"""Units of a step; the flag says whether blocks are resharded after forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Sizes of one parameter under FSDP2 on a rank."""

    shard_numel: int
    """Rows are split by ceil(rows / ranks); every rank stores that many, the last padded."""
    held_numel: int
    """Of these, what is no padding: all of rank 0's. The optimizer sees no more."""
    unsharded_numel: int
    """What an all-gather puts out: shards times ranks, padding included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Which parameters and units of a rank are sized alike: layers of a kind are, on however many ranks."""

    kinds: tuple[int, ...]
    """Of each parameter: the number of its kind."""
    parameters: tuple[int, ...]
    """Of each kind: its first parameter."""
    groups: tuple[int, ...]
    """Of each unit: the number of its kind."""
    units: tuple[Unit, ...]
    """Of each kind: its first unit."""


def alike(trace: StepTrace, units: Sequence[Unit], types: Sequence[object]) -> Alike:
    """Alike are parameters of one shape and type (`types`, one for each), and units that hold such ones."""
    numbers: dict[object, int] = {}
    firsts: list[int] = []
    kinds: list[int] = []
    for index, (parameter, own) in enumerate(zip(trace.parameters, types, strict=True)):
        key = (parameter.shape, parameter.dtype, parameter.experts, own)
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(index)
        kinds.append(numbers[key])
    groups: dict[object, int] = {}
    first_units: list[Unit] = []
    of_units: list[int] = []
    for unit in units:
        held = (unit.experts, *(kinds[index] for index in unit.parameters))
        if held not in groups:
            groups[held] = len(first_units)
            first_units.append(unit)
        of_units.append(groups[held])
    return Alike(kinds=tuple(kinds), parameters=tuple(firsts), groups=tuple(of_units), units=tuple(first_units))


def rows_of(rows: int, ranks: int, place: int) -> int:
    """Rows that a rank gets of a tensor that torch.chunk splits: the first ranks as many as fit in all, the last fewer,
    or none."""
    most = ceil_div(rows, ranks)
    return min(most, max(0, rows - place * most))


def shard(parameter: ParameterInfo, world_size: int, place: int = 0) -> Sharding:
    """_fsdp_param.py: _init_sharded_param chunks dim 0 and pads to the first chunk's size; the parameter that the
    optimizer is given is what is no padding (`sharded_size`)."""
    rows = parameter.shape[0] if parameter.shape else 1
    row = parameter.numel // rows if rows else 0
    shard_numel = ceil_div(rows, world_size) * row
    return Sharding(
        shard_numel=shard_numel,
        held_numel=rows_of(rows, world_size, place) * row,
        unsharded_numel=shard_numel * world_size,
    )


@of_trace
def wrap_units(trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
    """Units in the order in which accelerate makes them, the root last; parameters go to the innermost.

    4-bit weights belong to none (fsdp2_prepare_model ignores Params4bit that are stored as integers).
    """
    layout = trace.layout
    around = blocks_around_embeddings(trace)
    blocks = [name for name in layout.blocks if name not in around]
    units = [Unit(name=name, modules=(name,), reshard_after_forward=reshard_after_forward) for name in blocks]
    taken = set(blocks)
    embedding, head, norm = layout.input_embedding, layout.output_embedding, layout.final_norm
    if embedding and not layout.tied and embedding not in taken:
        units.append(Unit(name=embedding, modules=(embedding,), reshard_after_forward=reshard_after_forward))
        taken.add(embedding)
    tail = (norm, embedding, head) if layout.tied else (norm, head)
    modules = tuple(dict.fromkeys(name for name in tail if name and name not in taken))
    if modules:
        units.append(Unit(name="tail", modules=modules, reshard_after_forward=False))
    return with_parameters(trace, [*units, Unit(name=ROOT, modules=(ROOT,), reshard_after_forward=False)])


def with_parameters(trace: StepTrace, units: list[Unit]) -> list[Unit]:
    """Those of the units that own a parameter, which goes to the innermost; the root stands last."""
    root = units[-1]
    owners = {module: unit for unit in units[:-1] for module in unit.modules}
    for index, parameter in enumerate(trace.parameters):
        if not is_floating(parameter.dtype):
            continue
        _owner(parameter.module, owners, root).parameters.append(index)
    for unit in units:
        unit.parameters = [index for name in unit.modules for index in _children_first(trace, unit.parameters, name)]
    return [unit for unit in units if unit.parameters]


def blocks_around_embeddings(trace: StepTrace) -> list[str]:
    """Blocks that hold an embedding which fsdp2_prepare_model shards on its own as well.

    torch fails on what is sharded twice; the wrapping works once the layers' classes are named without theirs.
    """
    ends = [name for name in (trace.layout.input_embedding, trace.layout.output_embedding) if name]
    return [block for block in trace.layout.blocks if any(end.startswith(f"{block}.") for end in ends)]


def wrapping_notes(trace: StepTrace) -> tuple[str, ...]:
    """What the user has to name for accelerate to wrap the model so, and what torch refuses all the same."""
    notes = []
    left_out = blocks_around_embeddings(trace)
    if left_out:
        notes.append(
            f"name the layers' classes (fsdp_transformer_layer_cls_to_wrap) without that of {left_out[0]}, whose "
            "embedding accelerate shards on its own"
        )
    apart = shared_apart(trace)
    if apart:
        notes.append(
            f"{' and '.join(apart)} share a parameter and lie in groups of their own: torch from 2.13 on refuses that "
            "(shared with a parameter already managed by another FSDP group); untie them, or take DDP, FSDP1 or ZeRO"
        )
    return tuple(notes)


def shared_apart(trace: StepTrace) -> tuple[str, ...]:
    """Two modules that hold one parameter, of different units; none where there are none.

    torch/distributed/fsdp/_fully_shard/_fsdp_state.py: _validate_no_duplicate_params refuses, as training begins, a
    parameter that two groups manage (torch 2.13).
    """
    owners = {module: unit.name for unit in wrap_units(trace, True) for module in unit.modules}

    def unit_of(module: str) -> str:
        while module and module not in owners:
            module = module.rpartition(".")[0]
        return owners.get(module, ROOT)

    for shared in trace.layout.shared:
        first, *others = shared.split(" ")
        for other in others:
            if unit_of(other) != unit_of(first):
                return first, other
    return ()


def _children_first(trace: StepTrace, parameters: Sequence[int], module: str) -> list[int]:
    """Those of a unit's parameters that lie under one of its modules, a module's own after those of its children.

    _fsdp_init.py: _get_managed_modules walks depth first and lists a module behind its children.
    """
    holders = tuple(trace.parameters[index].module for index in parameters)
    return [parameters[place] for place in _places(holders, module)]


@lru_cache(maxsize=4096)
def _places(holders: tuple[str, ...], module: str) -> tuple[int, ...]:
    """The same of parameters' modules: every trace of a model has the same ones."""
    prefix = f"{module}." if module else ""
    inside: dict[str, list[int]] = {}
    own = []
    for place, holder in enumerate(holders):
        if holder == module:
            own.append(place)
        elif holder.startswith(prefix):
            inside.setdefault(prefix + holder[len(prefix) :].partition(".")[0], []).append(place)
    found: list[int] = []
    for child, held in inside.items():
        found += [held[place] for place in _places(tuple(holders[place] for place in held), child)]
    return (*found, *own)


def _owner(module: str, owners: dict[str, Unit], root: Unit) -> Unit:
    while module:
        if module in owners:
            return owners[module]
        module = module.rpartition(".")[0]
    return root
