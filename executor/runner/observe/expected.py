"""Stops a script whose model is not the planned one, before its first step."""

from typing import Any

from gpu_plan.executor.runner.observe import resized
from gpu_plan.executor.runner.observe.actual import Counts
from gpu_plan.executor.runner.options import Options
from gpu_plan.executor.runner.stop import Stop


class ParameterMismatch(Stop):
    """The script's model has another number of parameters than the plan's. Ends the rank with exit code 4."""

    exit_code = 4


def check_parameters(options: Options, *models: Any) -> None:
    """Raises ParameterMismatch unless the models, together or one of them, have as many parameters as expected."""
    expected = options.expected_parameters
    if expected is None or not models:
        return
    together = Counts()
    sizes = []
    for model in models:
        alone = Counts()
        alone.add(model)
        together.add(model)
        sizes.append(alone.total)
    if expected in (*sizes, together.total):
        return
    if any(resized.explains(size - expected) for size in (*sizes, together.total)):
        return  # tokens were added: the record tells how many parameters that makes
    names = ", ".join(f"{type(model).__name__} {size:,}" for model, size in zip(models, sizes, strict=True))
    raise ParameterMismatch(
        f"the script trains a model of {together.total:,} parameters ({names}), the plan is for {expected:,}: "
        "plan for the model that the script builds, or give the script the planned one"
    )
