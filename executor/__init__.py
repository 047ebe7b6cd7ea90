"""Applies a plan: launch files, the launch itself, what happens in the ranks, and what it took.

`from executor import current_plan` is what a training script may use; it costs no further import.
"""

from executor.current_plan import CurrentPlan, current_plan

__all__ = ["CurrentPlan", "current_plan"]
