"""Optimal placement of a model's modules over GPUs, host memory and disk.

`problem_of` makes a `Problem` of a model's modules and free bytes, `solve` finds the best `Placement`, `evaluate`
gives the cost of any map (accelerate's too). Pure values: nothing here imports torch; scipy only inside `solve`.

Others use the names below, `devices.devices_of` and `modules.modules_of_tensors`; `items` prepares units for `solver/`.
"""

from gpu_plan.planner.search.device_map.evaluate import evaluate
from gpu_plan.planner.search.device_map.in_plan import plan_placement
from gpu_plan.planner.search.device_map.modules import ModuleSize, TensorSize, modules_of, problem_of
from gpu_plan.planner.search.device_map.placement import Cost, DeviceUse, Placement, StageProof
from gpu_plan.planner.search.device_map.problem import Device, Problem, Tie, Unit
from gpu_plan.planner.search.device_map.show import accelerate_map, map_lines
from gpu_plan.planner.search.device_map.solver.solve import solve

__all__ = [
    "Cost",
    "Device",
    "DeviceUse",
    "ModuleSize",
    "Placement",
    "Problem",
    "StageProof",
    "TensorSize",
    "Tie",
    "Unit",
    "accelerate_map",
    "evaluate",
    "map_lines",
    "modules_of",
    "plan_placement",
    "problem_of",
    "solve",
]
