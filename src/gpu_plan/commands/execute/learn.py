"""What a run that has ended says of its plan's time, kept with this machine's calibration."""

from typing import TYPE_CHECKING

from gpu_plan.notes import say
from gpu_plan.planner.errors import PlanError

if TYPE_CHECKING:
    from gpu_plan.executor.records.whole import WholeRun
    from gpu_plan.planner.speed.calibration.record import Run

_FEWEST_STEPS = 5
"""The first steps load kernels and fill caches."""


def learn(run: "WholeRun") -> None:
    """Keeps the run's step beside the expected one, and says so, where this machine has a calibration."""
    from gpu_plan.planner.speed.calibration.store import remember

    found = compared(run)
    if found is None or run.plan is None:
        return
    try:
        record = remember(str(run.plan.cluster.get("gpu_id", "")), found)
    except PlanError:
        return  # the run succeeded: a record that cannot be written changes nothing about that
    if record is None:
        return
    ratio = found.measured_seconds / found.expected_seconds
    told = (
        f"a step took {found.measured_seconds:.3g} s, {found.expected_seconds:.3g} s were expected ({ratio:.2f} times)"
    )
    runs = f"{len(record.runs)} runs compared" if len(record.runs) > 1 else "the first run compared"
    usual = "" if record.learnt is None else f", {record.learnt:.2f} times at the median"
    say(f"{told}; {runs} on this machine{usual}")


def compared(run: "WholeRun") -> "Run | None":
    """The slowest rank's median step beside the plan's; None where too little ran, or not as planned."""
    from gpu_plan.planner.speed.calibration.record import Run

    plan = None if run.plan is None else run.plan.plan
    if run.status != "succeeded" or plan is None or plan.speed is None or plan.inference is not None:
        return None
    medians = [rank.summary.seconds_median for rank in run.ranks if rank.summary.steps >= _FEWEST_STEPS]
    known = [seconds for seconds in medians if seconds is not None]
    if not known or len(known) < len(run.ranks):
        return None
    assert run.plan is not None  # its plan is there
    what = f"{run.plan.model.id}: {plan.strategy.name}, micro batch {plan.strategy.micro_batch_size}"
    return Run(what=what, expected_seconds=plan.speed.step_seconds, measured_seconds=max(known))
