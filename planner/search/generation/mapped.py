"""Judges a device map: every device that computes with the storages that it really sees, the worst one shown."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.disk import NVME_BYTES_PER_S
from gpu_plan.planner.plan.inference import DevicePlacement
from gpu_plan.planner.search.generation.device_map import (
    Mapped,
    activation_bytes,
    find_map,
    placement_of,
)
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.rank import Generated, RankEvaluator, parameter_bytes
from gpu_plan.planner.search.generation.times import PassTimes
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.strategy.generation.stream import States
from gpu_plan.planner.strategy.generation.view import homes, seen_by, unit_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.passes import cut
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.units import format_gib

_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """One device of a map, judged."""

    name: str
    judgement: GenerationJudgement


def judge_map(evaluator: RankEvaluator, layout: Layout, context: int, batch: int) -> GenerationJudgement:
    """The map that the solver finds for the room that activations and the allocator leave, judged by its worst device.

    Where the allocator wants more than was left, the map is sought again with that much less. On GPUs alone, a map that
    was found for another size and holds this one too is taken as it is. CannotSplitError where no map fits.
    """
    generated = evaluator.generation(layout, context, batch)
    trace = generated.cuts[0].trace
    terms = evaluator.terms(layout)
    room = evaluator.capacity_bytes - sum(term.high for term in terms) - evaluator.workspace
    free = room - max(activation_bytes(part) for part in generated.cuts)
    judged: GenerationJudgement | None = None
    times = evaluator.times(generated, context, 1)
    known = evaluator.maps.get(layout)
    if known is not None:
        judged = _judge(evaluator, layout, context, batch, generated, known, times)
        if judged.verdict == "fits":
            return judged
        judged = None
    mapped: Mapped | None = None
    over = 0
    for _ in range(_ATTEMPTS):
        free -= over
        if free <= 0:
            break
        if mapped is not None and _still_best(mapped, free):
            continue
        try:
            mapped = _map(evaluator, layout, generated, trace, free)
        except InputError as problem:
            if judged is not None:
                break
            raise CannotSplitError(_short(problem)) from None
        if mapped.word(mapped.found.main_device) not in mapped.devices:
            break  # no GPU has room for a single block: the solver lets the CPU compute
        judged = _judge(evaluator, layout, context, batch, generated, mapped, times)
        if judged.verdict == "fits":
            if layout.offload == "none":
                evaluator.maps[layout] = mapped
            break
        over = max(judged.high_bytes - judged.capacity_bytes, 1)
    if judged is None:
        need, capacity = format_gib(max(0, room - free)), format_gib(evaluator.capacity_bytes)
        raise CannotSplitError(
            f"activations of one forward pass take {need} GiB of {capacity}, which leaves no room for a block's weights"
        )
    return judged


def _still_best(mapped: Mapped, free: int) -> bool:
    """Whether a map is among those of less room, of which it is the best as it was of all."""
    on_devices = [use for use in mapped.found.devices if mapped.word(use.name) in mapped.devices]
    return all(use.peak_bytes <= free for use in on_devices)


def _short(problem: InputError) -> str:
    return str(problem).removeprefix("device map: ")


def _map(evaluator: RankEvaluator, layout: Layout, generated: Generated, trace: StepTrace, free: int) -> Mapped:
    return find_map(
        evaluator.provider.spec(),
        trace,
        generated.last,
        evaluator.cluster,
        free_bytes=free,
        offload=layout.offload == "all",
        sizes={parameter.name: parameter_bytes(parameter) for parameter in trace.parameters},
    )


def _judge(
    evaluator: RankEvaluator,
    layout: Layout,
    context: int,
    batch: int,
    generated: Generated,
    mapped: Mapped,
    times: PassTimes,
) -> GenerationJudgement:
    trace = generated.cuts[0].trace
    places = {parameter.name: mapped.place_of(parameter.name) for parameter in trace.parameters}
    sizes = {parameter.name: parameter_bytes(parameter) for parameter in trace.parameters}
    away = {name: sizes[name] for name, place in places.items() if place not in mapped.devices}
    held = {place: sum(sizes[name] for name in places if places[name] == place) for place in set(places.values())}
    runs_on = mapped.runs_on
    main = min(runs_on.values())
    devices = []
    for index, name in enumerate(mapped.devices):
        if index not in runs_on.values():
            continue
        parts = tuple(
            cut(seen_by(part.trace, homes(part.trace, runs_on, away), index), *part.passes) for part in generated.cuts
        )
        states = States(
            weights=tuple((key, sizes[key]) for key, place in places.items() if place == name),
            buffers=tuple(entry for entry in trace.buffer_bytes if _runs(entry[0], runs_on, main) == index),
            merged=evaluator.provider.merged(),
            workspace=evaluator.workspace,
            warm_up=not evaluator.cluster.gpu.is_cpu,
        )
        here = replace(generated, cuts=parts)
        devices.append(_Device(name=name, judgement=evaluator.rank(layout, context, batch, here, states, times)))
    worst = max(devices, key=lambda device: device.judgement.high_bytes).judgement
    figures = tuple(
        DevicePlacement(
            device=device.name,
            weight_bytes=device.judgement.weight_bytes,
            kv_cache_bytes=device.judgement.kv_cache_bytes,
            peak_bytes=device.judgement.profile.peak_allocated_bytes,
            capacity_bytes=evaluator.capacity_bytes,
        )
        for device in devices
    )
    figures += tuple(
        DevicePlacement(device=place, weight_bytes=held[place])
        for place in ("cpu", "disk")
        if place in held and place not in mapped.devices
    )
    return replace(
        worst,
        times=_times(evaluator, times, mapped, sum(count for _, count in generated.prefill)),
        placement=placement_of(mapped, figures),
        cpu_bytes=0 if "cpu" in mapped.devices else held.get("cpu", 0),
        disk_bytes=held.get("disk", 0),
        host_bytes=0 if "cpu" in mapped.devices else held.get("cpu", 0),
        rests_on=_notes(mapped, held),
    )


def _runs(name: str, runs_on: Mapping[str, int], main: int) -> int:
    unit = unit_of(name, runs_on)
    return main if unit is None else runs_on[unit]


def _times(evaluator: RankEvaluator, times: PassTimes, mapped: Mapped, prefills: float) -> PassTimes:
    """One device computes at a time; weights that stand elsewhere are copied in for every pass, before it goes on.

    `prefills`: passes that take the prompt.
    """
    cost = mapped.found.cost
    copied = cost.offloaded_bytes / evaluator.cluster.host_link_bytes_per_s if not evaluator.cluster.gpu.is_cpu else 0.0
    each = copied + cost.disk_bytes / NVME_BYTES_PER_S

    def slower(time: StepTime, passes: float) -> StepTime:
        seconds = each * passes
        return replace(
            time,
            step_seconds=time.step_seconds + seconds,
            ends=lambda: (time.low_seconds + seconds, time.high_seconds + seconds),
            host_transfer_seconds=time.host_transfer_seconds + seconds,
            mfu=None,
            basis="assumed" if cost.disk_bytes else time.basis,
        )

    return PassTimes(prefill=slower(times.prefill, prefills), decode=slower(times.decode, 1.0))


def _notes(mapped: Mapped, held: Mapping[str, int]) -> tuple[str, ...]:
    notes = ["modules run as accelerate's hooks run them: one device at a time, in the order of the model"]
    if "cpu" in held and "cpu" not in mapped.devices:
        notes.append("weights in RAM are copied to the main device module by module, for each forward pass")
    if "disk" in held:
        notes.append(f"weights on disk are read at {NVME_BYTES_PER_S / 1e9:g} GB/s for each forward pass (assumed)")
    return tuple(notes)
