"""The speed model that a job is planned with: published rates, or what was measured on this machine (I/O)."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.options.request import Note
from gpu_plan.planner.speed.calibration.store import kept_for
from gpu_plan.planner.speed.roofline import RooflineModel


def speed_for(cluster: Cluster, note: Note) -> RooflineModel:
    """With the calibration of this machine where one is kept for these devices and holds; told where it does not."""
    kept = kept_for(cluster)
    if kept.refused:
        note(kept.refused)
    return RooflineModel(kept.record)
