"""From a model's modules to the units of a problem, split as accelerate splits them.

A module is placed as a whole when its class is in the no-split list or it has no children; any other module is
replaced by its own tensors (named as parameters, as `infer_auto_device_map` does) and its children.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map.problem import Device, Problem, Tie, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSize:
    """A parameter or buffer that a module holds itself."""

    name: str
    """Qualified."""
    num_bytes: int
    buffer: bool = False
    tied_to: str | None = None
    """One name for all names of the same storage; None for a tensor that nothing shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSize:
    """One module with the tensors that it holds itself; a list of them, parents first, describes a model."""

    name: str
    """Qualified; empty for the model itself."""
    class_name: str
    tensors: tuple[TensorSize, ...] = ()


def modules_of(model: Any, *, size_of: Callable[[str, Any], int] | None = None) -> tuple[ModuleSize, ...]:
    """The modules of an `nn.Module` (meta device or not), a shared one under each of its names.

    `size_of(name, tensor)` gives a tensor's bytes as loaded, where that is not its present size (quantised on load).
    Two names are tied when they hold the same object, as in accelerate's `find_tied_parameters`, or when a
    transformers model lists them in `all_tied_weights_keys`.
    """
    declared = dict(getattr(model, "all_tied_weights_keys", None) or {})
    owners: dict[int, list[str]] = {}
    found: list[tuple[str, str, list[tuple[str, Any, bool]]]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        prefix = f"{name}." if name else ""
        held = [(prefix + key, value, False) for key, value in module._parameters.items() if value is not None]
        held += [(prefix + key, value, True) for key, value in module._buffers.items() if value is not None]
        for full, value, _ in held:
            owners.setdefault(id(value), []).append(full)
        found.append((name, type(module).__name__, held))
    groups = _tie_groups(owners.values(), declared)
    return tuple(
        ModuleSize(
            name=name,
            class_name=class_name,
            tensors=tuple(
                TensorSize(
                    name=full,
                    num_bytes=size_of(full, value) if size_of else value.numel() * value.element_size(),
                    buffer=buffer,
                    tied_to=groups.get(full),
                )
                for full, value, buffer in held
            ),
        )
        for name, class_name, held in found
    )


def modules_of_tensors(tensors: Iterable[TensorSize], classes: Mapping[str, str]) -> tuple[ModuleSize, ...]:
    """Modules from tensor names alone (a checkpoint, a ModelSpec); `classes` names the classes that are known."""
    held: dict[str, list[TensorSize]] = {"": []}
    for tensor in tensors:
        parts = tensor.name.split(".")
        for depth in range(1, len(parts)):
            held.setdefault(".".join(parts[:depth]), [])
        held[".".join(parts[:-1])].append(tensor)
    return tuple(
        ModuleSize(name=name, class_name=classes.get(name, ""), tensors=tuple(values)) for name, values in held.items()
    )


def problem_of(
    modules: Iterable[ModuleSize],
    devices: Iterable[Device],
    *,
    no_split: Collection[str] = (),
    state_bytes: Mapping[str, int] | None = None,
    workspace_bytes: Mapping[str, int] | None = None,
    read_bytes: Mapping[str, int] | None = None,
    output_bytes: int = 0,
    streaming: Literal["unit", "module"] = "unit",
    order: Iterable[str] | None = None,
    peer_bytes_per_s: float | None = None,
    boundary_seconds: float = 0.0,
) -> Problem:
    """The placement problem of a model.

    `no_split`: class names (`_no_split_modules`) that stay whole. `state_bytes`, `workspace_bytes`, `read_bytes`: by
    module name, each for the unit that is or holds the module (workspace: the largest). `streaming`: what must be on
    the GPU at once of an offloaded unit: all of it, as accelerate's planner reserves, or its largest module, as
    accelerate's hooks really copy. `order`: unit or module names as they run; the modules' own order otherwise.
    Raises InputError for names that no unit holds and for sizes that make no sense.
    """
    units = split_units(modules, no_split, streaming)
    names = [unit.name for unit in units]
    amounts = {
        "state_bytes": _amounts(state_bytes, names, sum),
        "workspace_bytes": _amounts(workspace_bytes, names, max),
        "read_bytes": _amounts(read_bytes, names, sum),
    }
    filled = []
    for unit in units:
        changes: dict[str, Any] = {field: table[unit.name] for field, table in amounts.items() if unit.name in table}
        filled.append(replace(unit, output_bytes=output_bytes, **changes))
    if order is not None:
        place = {name: index for index, name in reversed(list(enumerate(_holders(order, names))))}
        last = len(place) + len(names)
        filled = [u for _, u in sorted(enumerate(filled), key=lambda pair: (place.get(pair[1].name, last), pair[0]))]
    return Problem(
        units=tuple(filled),
        devices=tuple(devices),
        peer_bytes_per_s=peer_bytes_per_s,
        boundary_seconds=boundary_seconds,
    )


def split_units(
    modules: Iterable[ModuleSize], no_split: Collection[str], streaming: Literal["unit", "module"] = "unit"
) -> tuple[Unit, ...]:
    """The smallest pieces that may be placed apart, in the order of the modules."""
    listed = list(modules)
    by_name = {module.name: module for module in listed}
    if len(by_name) != len(listed):
        twice = next(m.name for i, m in enumerate(listed) if any(m.name == other.name for other in listed[:i]))
        raise InputError(f"device map: module {twice!r} is named twice")
    children: dict[str, list[str]] = {}
    for module in listed:
        if module.name:
            children.setdefault(module.name.rpartition(".")[0], []).append(module.name)
    units: list[Unit] = []

    def visit(name: str) -> None:
        module = by_name[name]
        below = children.get(name, [])
        if name and (not below or module.class_name in no_split):
            units.append(_unit(name, _inside(name, by_name, children), streaming))
            return
        for tensor in module.tensors:
            whole = replace(module, name=tensor.name, tensors=(tensor,))
            units.append(_unit(tensor.name, [whole], streaming))
        for child in below:
            visit(child)

    if "" in by_name:
        visit("")
    else:
        for module in listed:
            if module.name.rpartition(".")[0] not in by_name:
                visit(module.name)
    return tuple(units)


def _inside(name: str, by_name: Mapping[str, ModuleSize], children: Mapping[str, list[str]]) -> list[ModuleSize]:
    found = [by_name[name]]
    for child in children.get(name, ()):
        found += _inside(child, by_name, children)
    return found


def _unit(name: str, modules: list[ModuleSize], streaming: str) -> Unit:
    weights = buffers = largest = 0
    counted: dict[str, int] = {}
    for module in modules:
        own = 0
        for tensor in module.tensors:
            if tensor.tied_to is not None:
                if tensor.tied_to in counted:
                    continue  # tied within the unit: stored and streamed once
                counted[tensor.tied_to] = tensor.num_bytes
            if tensor.buffer:
                buffers += tensor.num_bytes
            else:
                own += tensor.num_bytes
        weights += own
        largest = max(largest, own)
    ties = tuple(
        Tie(group=group, num_bytes=size)
        for group, size in counted.items()
        if not any(tensor.buffer and tensor.tied_to == group for module in modules for tensor in module.tensors)
    )
    stream = largest if streaming == "module" else None
    return Unit(name=name, weight_bytes=weights, buffer_bytes=buffers, stream_bytes=stream, ties=ties)


def _tie_groups(shared: Iterable[list[str]], declared: Mapping[str, str]) -> dict[str, str]:
    """Name to the first name of its storage, for names that are not alone."""
    groups: dict[str, str] = {}
    for names in shared:
        if len(names) > 1:
            groups |= dict.fromkeys(names, names[0])
    for name, source in declared.items():
        first = groups.get(source) or groups.get(name) or source
        joined = {name, source} | {n for n, g in groups.items() if g in (groups.get(name), groups.get(source)) and g}
        groups |= dict.fromkeys(joined, first)
    return groups


def _holders(names: Iterable[str], units: Collection[str]) -> list[str]:
    """For each name the unit that is it, holds it, or (a parent) nothing."""
    known = set(units)
    found = []
    for name in names:
        part = name
        while part and part not in known:
            part = part.rpartition(".")[0]
        if part:
            found.append(part)
    return found


def _amounts(
    table: Mapping[str, int] | None, names: Collection[str], join: Callable[[list[int]], int]
) -> dict[str, int]:
    known = set(names)
    gathered: dict[str, list[int]] = {}
    for name, amount in (table or {}).items():
        holders = _holders([name], known)
        if not holders:
            raise InputError(f"device map: {name!r} is not a module that is placed, nor inside one")
        gathered.setdefault(holders[0], []).append(amount)
    return {name: join(values) for name, values in gathered.items()}
