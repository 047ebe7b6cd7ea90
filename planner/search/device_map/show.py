"""A placement as text and as the mapping that accelerate and transformers take."""

import re
from collections.abc import Iterator

from gpu_plan.planner.search.device_map.placement import Placement
from gpu_plan.planner.search.device_map.problem import DeviceName
from gpu_plan.planner.units import format_bytes

_NUMBERED = re.compile(r"(.*\.)(\d+)")


def accelerate_map(placement: Placement) -> dict[str, DeviceName]:
    """The map as `from_pretrained(device_map=...)`, `dispatch_model` and a JSON file take it, main GPU first."""
    return dict(placement.device_map)


def device_text(name: DeviceName) -> str:
    """`cuda:0`, `cpu`, `disk`."""
    return f"cuda:{name}" if isinstance(name, int) else name


def map_groups(placement: Placement) -> list[tuple[str, DeviceName]]:
    """(what, device) in execution order, numbered neighbours on one device joined: (`model.layers 0-31`, 0)."""
    groups: list[tuple[str, DeviceName]] = []
    for prefix, first, last, device in _spans(placement):
        numbers = f"{first}" if first == last else f"{first}-{last}"
        groups.append((prefix if first is None else f"{prefix[:-1]} {numbers}", device))
    return groups


def _spans(placement: Placement) -> Iterator[tuple[str, int | None, int | None, DeviceName]]:
    open_span: tuple[str, int | None, int | None, DeviceName] | None = None
    for name in placement.execution_order:
        device = placement.device_map[name]
        match = _NUMBERED.fullmatch(name)
        prefix, number = (match[1], int(match[2])) if match else (name, None)
        if open_span is not None:
            joins = open_span[0] == prefix and open_span[3] == device and open_span[2] is not None
            if joins and number is not None and number == (open_span[2] or 0) + 1:
                open_span = (prefix, open_span[1], number, device)
                continue
            yield open_span
        open_span = (prefix, number, number, device)
    if open_span is not None:
        yield open_span


def map_lines(placement: Placement) -> list[str]:
    """Lines such as `model.layers 0-31 -> cuda:0`, then one per device with its bytes."""
    groups = map_groups(placement)
    width = max(len(what) for what, _ in groups)
    lines = [f"{what:<{width}} -> {device_text(device)}" for what, device in groups]
    for use in placement.devices:
        if use.peak_bytes:
            of = "" if use.free_bytes is None else f" of {format_bytes(use.free_bytes)}"
            lines.append(
                f"{device_text(use.name)}: {format_bytes(use.peak_bytes)}{of} "
                f"(weights {format_bytes(use.weight_bytes)}, cache and buffers {format_bytes(use.kept_bytes)}, "
                f"headroom {format_bytes(use.headroom_bytes)})"
            )
    lines.append(_summary(placement))
    return lines


def _summary(placement: Placement) -> str:
    cost = placement.cost
    moved = "nothing offloaded" if not cost.offloaded_bytes else f"{format_bytes(cost.offloaded_bytes)} streamed"
    time = "" if placement.seconds_per_token is None else f", {placement.seconds_per_token * 1000:.3g} ms"
    if not placement.proof:
        proved = "evaluated"
    elif placement.optimal:
        proved = "proved optimal"
    else:
        open_goals = ", ".join(stage.goal for stage in placement.proof if not stage.optimal)
        proved = f"best found; not proved for: {open_goals}"
    boundaries = "1 boundary" if cost.boundaries == 1 else f"{cost.boundaries} boundaries"
    return f"per token: {moved}, {boundaries}{time} ({proved})"
