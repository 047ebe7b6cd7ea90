"""A placement in the words of a plan file."""

from gpu_plan.planner.plan.inference import DevicePlacement
from gpu_plan.planner.plan.inference import Placement as PlannedPlacement
from gpu_plan.planner.search.device_map.placement import Placement
from gpu_plan.planner.search.device_map.show import accelerate_map, device_text


def plan_placement(placement: Placement) -> PlannedPlacement:
    """What a plan keeps: devices as `cuda:0`, and only those that hold or run something."""
    used = {device_text(name) for name in placement.device_map.values()}
    return PlannedPlacement(
        device_map={name: device_text(device) for name, device in accelerate_map(placement).items()},
        devices=tuple(
            DevicePlacement(
                device=device_text(use.name),
                weight_bytes=use.weight_bytes + use.buffer_bytes,
                kv_cache_bytes=use.state_bytes,
                peak_bytes=use.peak_bytes if use.name != "disk" else None,
                capacity_bytes=use.free_bytes,
            )
            for use in placement.devices
            if use.peak_bytes or device_text(use.name) in used
        ),
        main_device=device_text(placement.main_device),
        boundaries=placement.cost.boundaries,
        moved_bytes_per_step=placement.streamed_bytes,
        optimal=placement.optimal,
    )
