"""Plans the GPU memory, strategy and speed of PyTorch and Hugging Face jobs before anything is rented, and runs plans.

    from gpu_plan import plan, sweep, run, current_plan

`plan` and `sweep` plan jobs, `run` executes a saved plan from Python, `current_plan` tells a training script under
which plan it runs. All errors are classes of `PlanError`, with one line each; the command `plan` is the same thing in
words.

This is the front door, the one place that joins the packages below it, and the only one that others import from:

    planner    what a job takes and how to spread it; knows none of the others
    executor   applies a plan: launches, watches, records
    reports    documents as text, pages, tables, plots
    tui        the explorer

Nothing is imported before it is asked for: `import gpu_plan` costs a training script nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_plan.version import __version__ as __version__

if TYPE_CHECKING:
    from gpu_plan.api.calls import plan, sweep
    from gpu_plan.api.results import Result, SweepResult
    from gpu_plan.executor.current_plan import CurrentPlan, current_plan
    from gpu_plan.executor.from_python import RunFailedError, RunResult, run
    from gpu_plan.planner.errors import (
        InputError,
        NotBuiltError,
        PlanError,
        PreflightError,
        UnreachableError,
        UsageError,
    )

__all__ = [
    "CurrentPlan",
    "InputError",
    "NotBuiltError",
    "PlanError",
    "PreflightError",
    "Result",
    "RunFailedError",
    "RunResult",
    "SweepResult",
    "UnreachableError",
    "UsageError",
    "current_plan",
    "plan",
    "run",
    "sweep",
]

_HOME = {
    "gpu_plan.api.calls": ("plan", "sweep"),
    "gpu_plan.api.results": ("Result", "SweepResult"),
    "gpu_plan.executor.current_plan": ("CurrentPlan", "current_plan"),
    "gpu_plan.executor.from_python": ("RunFailedError", "RunResult", "run"),
    "gpu_plan.planner.errors": (
        "InputError", "NotBuiltError", "PlanError", "PreflightError", "UnreachableError", "UsageError",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names of the API, imported when they are first asked for."""
    home = next((module for module, names in _HOME.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
