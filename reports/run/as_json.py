"""A run's report, and the list of runs, as JSON documents."""

from collections.abc import Mapping, Sequence

from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.plan.codec import dump, plain
from gpu_plan.reports.run.compare import RunComparison
from gpu_plan.reports.run.figures import Compared
from gpu_plan.reports.run.listing import RunLine

SCHEMA_VERSION = 1


def render_run_json(run: WholeRun, comparison: RunComparison) -> str:
    """The records as they are, and what was compared; ASCII, without a final newline."""
    sections = ("memory", "phases", "categories", "speed")
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "status": run.status,
            "supervisor_alive": run.supervisor_alive,
            "folder": run.folder,
            "engine": run.engine,
            "run": run.record,
            "strategy": None if run.plan is None else run.plan.plan.strategy,
            "model": None if run.plan is None else run.plan.model.id,
            "cluster": None if run.plan is None else run.plan.cluster["spec"],
            "device": "cpu" if comparison.cpu else "cuda" if run.ranks else None,
            **{name: [_figure(figure) for figure in getattr(comparison, name)] for name in sections},
            "ranks": run.ranks,
            "notes": comparison.notes,
        }
    )


def _figure(figure: Compared) -> Mapping[str, object]:
    return {**plain(figure), "ratio": figure.ratio, "inside": figure.inside}


def render_runs_json(lines: Sequence[RunLine]) -> str:
    """One object per run, oldest first; without a final newline."""
    return dump({"schema_version": SCHEMA_VERSION, "runs": list(lines)})
