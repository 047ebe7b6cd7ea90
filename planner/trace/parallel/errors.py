"""What a model cannot be made to do; nothing here needs torch."""

from gpu_plan.planner.errors import UsageError


class CannotSplitError(UsageError):
    """The model's class or sizes do not allow this degree of tensor parallel, number of stages or distance between
    checkpoints: what nobody asked for is left out, with this reason."""
