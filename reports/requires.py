"""Says in one line which optional package a report needs, before any work is done."""

import importlib.util

from gpu_plan.planner.errors import UsageError


def need_matplotlib(what: str) -> None:
    """UsageError where plots cannot be drawn; `what` is the option that asks for them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"{what}: drawn by matplotlib, which is not installed: pip install 'gpu-plan[plots]'")


def need_pandas(what: str) -> None:
    """UsageError where no frames can be made; `what` is the option or call that asks for them."""
    if importlib.util.find_spec("pandas") is None:
        raise UsageError(f"{what}: made by pandas, which is not installed: pip install 'gpu-plan[frames]'")
