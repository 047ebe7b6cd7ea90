"""Ends a rank whose loss is no finite number, where that was asked for."""

from gpu_plan.executor.runner.stop import Stop


class NotFiniteLoss(Stop):
    """The loss of a step is NaN or infinite."""

    exit_code = 1
