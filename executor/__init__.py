"""Applies a plan: launch files, the launch itself, what happens in the ranks, and what it took.

`from executor import current_plan` is what a training script may use; it costs no further import. `executor.run`
executes a plan from Python, and is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from executor.current_plan import CurrentPlan, current_plan

if TYPE_CHECKING:
    from executor.from_python import RunFailedError, RunResult, run

__all__ = ["CurrentPlan", "RunFailedError", "RunResult", "current_plan", "run"]


def __getattr__(name: str) -> Any:
    if name in ("RunFailedError", "RunResult", "run"):
        from importlib import import_module

        return getattr(import_module("executor.from_python"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
