"""The cost of any device map: what it holds where, what it moves per token, and whether it fits."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map.placement import Cost, DeviceUse, Placement, StageProof
from gpu_plan.planner.search.device_map.problem import Device, DeviceName, Problem, Unit, stored_bytes


def evaluate(problem: Problem, device_map: Mapping[str, DeviceName], *, proof: Sequence[StageProof] = ()) -> Placement:
    """Judges `device_map` (keys may be parents of units; `""` is all): the same cost for ours and for accelerate's.

    Raises InputError when a key names no module, a unit gets no device or two, or a device is unknown. A map that
    does not fit is no error: its `violations` say what is wrong.
    """
    where = unit_devices(problem, device_map)
    main = main_device(problem, device_map)
    runs_on = {unit.name: _executing(problem, where[unit.name], main) for unit in problem.units}
    devices = tuple(_use(problem, device, where, runs_on) for device in problem.devices)
    crossing = _crossings(problem, runs_on)
    streamed = sum(unit.weight_bytes for unit in problem.units if runs_on[unit.name] != where[unit.name])
    best_kind = "gpu" if problem.gpus else "cpu"
    offloaded = [unit for unit in problem.units if _kind(problem, where[unit.name]) != best_kind]
    from_disk = [unit for unit in problem.units if _kind(problem, where[unit.name]) == "disk"]
    executing = set(runs_on.values())
    cost = Cost(
        offloaded_bytes=sum(unit.weight_bytes for unit in offloaded),
        disk_bytes=sum(unit.weight_bytes for unit in from_disk),
        boundaries=len(crossing),
        fullest=max((_share(use) for use in devices if use.name in executing), default=0.0),
        step_bytes=problem.step_bytes,
        idle_gpus=bool(problem.gpus) and main == "cpu",
    )
    staged = cost.disk_bytes if main != "cpu" else 0  # from disk to a GPU: read, then copied
    return Placement(
        device_map={unit.name: where[unit.name] for unit in _main_first(problem.units, where, main)},
        execution_order=tuple(unit.name for unit in problem.units),
        main_device=main,
        devices=devices,
        cost=cost,
        streamed_bytes=streamed,
        moved_bytes=staged + streamed + sum(unit.output_bytes for unit, _, _ in crossing),
        seconds_per_token=_seconds(problem, where, runs_on, crossing),
        proof=tuple(proof),
        violations=_violations(problem, devices, where),
    )


def unit_devices(problem: Problem, device_map: Mapping[str, DeviceName]) -> dict[str, DeviceName]:
    """Device of every unit, from keys that are units, their parents or (all on one device) their parts."""
    names = {unit.name for unit in problem.units}
    known = {device.name for device in problem.devices}
    parents = {""}
    for name in names:
        while name:
            name = name.rpartition(".")[0]
            parents.add(name)
    inside: dict[str, set[DeviceName]] = {}
    for key, device in device_map.items():
        if device not in known:
            raise InputError(f"device map: {key!r} is placed on {device!r}, which is not one of the given devices")
        if key in names or key in parents:
            continue
        holder = key
        while holder and holder not in names:
            holder = holder.rpartition(".")[0]
        if not holder:
            raise InputError(f"device map: {key!r} names no module of the model")
        inside.setdefault(holder, set()).add(device)
    found: dict[str, DeviceName] = {}
    for unit in problem.units:
        key = unit.name
        while key and key not in device_map:
            key = key.rpartition(".")[0]
        parts = inside.get(unit.name, set())
        if key not in device_map and not parts and not unit.weight_bytes:
            found[unit.name] = main_device(problem, device_map)  # as hooks place buffers that no key covers
            continue
        if key not in device_map and not parts:
            raise InputError(f"device map: no device is given for {unit.name}")
        if len(parts | ({device_map[key]} if key in device_map else set())) > 1:
            raise InputError(f"device map: {unit.name} must not be split over devices")
        found[unit.name] = device_map[key] if key in device_map else next(iter(parts))
    return found


def main_device(problem: Problem, device_map: Mapping[str, DeviceName]) -> DeviceName:
    """Where offloaded modules run: the lowest GPU that the map names, else the CPU.

    accelerate's `dispatch_model` takes the first of a set of GPU indices, which is the lowest (below eight); older
    versions took the first in the map, so `evaluate` names it first as well.
    """
    used = set(device_map.values())
    return next((device.name for device in problem.gpus if device.name in used), "cpu")


def _kind(problem: Problem, name: DeviceName) -> str:
    device = problem.device(name)
    return device.kind if device is not None else "cpu"


def _executing(problem: Problem, device: DeviceName, main: DeviceName) -> DeviceName:
    return device if _kind(problem, device) == "gpu" else main


def _main_first(units: Sequence[Unit], where: Mapping[str, DeviceName], main: DeviceName) -> list[Unit]:
    first = next((index for index, unit in enumerate(units) if where[unit.name] == main), 0)
    earlier_gpu = any(isinstance(where[unit.name], int) for unit in units[:first])
    if not earlier_gpu:
        return list(units)
    return [units[first], *units[:first], *units[first + 1 :]]


def _use(
    problem: Problem, device: Device, where: Mapping[str, DeviceName], runs_on: Mapping[str, DeviceName]
) -> DeviceUse:
    here = [unit for unit in problem.units if where[unit.name] == device.name]
    run_here = [unit for unit in problem.units if runs_on[unit.name] == device.name]
    headroom = max(
        (u.workspace_bytes if where[u.name] == device.name else u.headroom_bytes for u in run_here), default=0
    )
    if device.kind == "cpu":
        # A weight from disk passes through host memory on its way to the GPU.
        disk = [u for u in problem.units if _kind(problem, where[u.name]) == "disk" and runs_on[u.name] != "cpu"]
        headroom = max([headroom, *(u.headroom_bytes - u.workspace_bytes for u in disk)])
    return DeviceUse(
        name=device.name,
        weight_bytes=stored_bytes(here),
        buffer_bytes=sum(unit.buffer_bytes for unit in run_here),
        state_bytes=sum(unit.state_bytes for unit in run_here),
        headroom_bytes=headroom,
        free_bytes=device.free_bytes,
    )


def _share(use: DeviceUse) -> float:
    if not use.free_bytes:
        return 0.0 if use.free_bytes is None or not use.peak_bytes else float("inf")
    return use.peak_bytes / use.free_bytes


def _crossings(problem: Problem, runs_on: Mapping[str, DeviceName]) -> list[tuple[Unit, DeviceName, DeviceName]]:
    """Units whose output goes to another device; modules without weights run where their input is."""
    weighted = [unit for unit in problem.units if unit.weight_bytes]
    pairs = pairwise(weighted)
    return [(a, runs_on[a.name], runs_on[b.name]) for a, b in pairs if runs_on[a.name] != runs_on[b.name]]


def _violations(problem: Problem, devices: Sequence[DeviceUse], where: Mapping[str, DeviceName]) -> tuple[str, ...]:
    found = [
        f"device {use.name} needs {use.peak_bytes} bytes and has {use.free_bytes}"
        for use in devices
        if use.free_bytes is not None and use.peak_bytes > use.free_bytes
    ]
    homes: dict[str, set[DeviceName]] = {}
    for unit in problem.units:
        for tie in unit.ties:
            homes.setdefault(tie.group, set()).add(where[unit.name])
    found += [f"tied tensor {group} is on several devices" for group, places in homes.items() if len(places) > 1]
    return tuple(found)


def _seconds(
    problem: Problem,
    where: Mapping[str, DeviceName],
    runs_on: Mapping[str, DeviceName],
    crossing: Sequence[tuple[Unit, DeviceName, DeviceName]],
) -> float | None:
    """Bandwidth-bound time of one decoded token, nothing overlapped (accelerate's hooks copy, then compute)."""
    parts: list[float | None] = []
    for unit in problem.units:
        parts.append(_time(unit.token_bytes, problem, runs_on[unit.name], "memory"))
        if where[unit.name] != runs_on[unit.name]:
            if _kind(problem, where[unit.name]) == "disk":
                parts.append(_time(unit.weight_bytes, problem, where[unit.name], "link"))
            if _kind(problem, runs_on[unit.name]) == "gpu":
                parts.append(_time(unit.weight_bytes, problem, runs_on[unit.name], "link"))
    for unit, source, target in crossing:
        parts.append(problem.boundary_seconds)
        if problem.peer_bytes_per_s is not None:
            parts.append(unit.output_bytes / problem.peer_bytes_per_s)
        else:
            parts += [
                _time(unit.output_bytes, problem, source, "link"),
                _time(unit.output_bytes, problem, target, "link"),
            ]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _time(num_bytes: int, problem: Problem, name: DeviceName, which: str) -> float | None:
    if not num_bytes:
        return 0.0
    device = problem.device(name)
    rate = None
    if device is not None:
        rate = device.memory_bytes_per_s if which == "memory" else device.link_bytes_per_s
    return None if rate is None else num_bytes / rate
