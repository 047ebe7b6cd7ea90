"""The speed model that a job is planned with: published rates, or what was measured on this machine (I/O)."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.options.request import Note
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.speed.calibration.store import kept_for
from gpu_plan.planner.speed.roofline import RooflineModel


def speed_for(cluster: Cluster, note: Note) -> RooflineModel:
    """With the calibration of this machine where one is kept for these devices and holds; told where it does not."""
    kept = kept_for(cluster)
    if kept.refused:
        note(kept.refused)
    return RooflineModel(kept.record)


def measured_here(cluster: Cluster) -> tuple[Assumption, ...]:
    """Says that the plan's times rest on this machine's own calibration, where they do."""
    record = kept_for(cluster).record
    if record is None:
        return ()
    text = f"rates of {record.machine.device} were measured here by plan calibrate, {record.made[:10]}"
    if record.learnt is not None:
        text += f"; {len(record.runs)} runs took {record.learnt:.2f} times what was expected (median)"
    return (Assumption(text=text, basis="measured"),)
