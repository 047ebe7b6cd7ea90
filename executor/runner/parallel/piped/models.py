"""Models of transformers are cut into stages where the script loads or makes them.

Each rank makes the whole model first, as the script does; the weights are then the first rank's, since others may have
drawn their own, and what belongs to other ranks' stages is let go of.
"""

import functools
from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.parallel.making import Making
from gpu_plan.executor.runner.parallel.piped.layout import Layout
from gpu_plan.executor.runner.parallel.piped.run import PipedModel
from gpu_plan.planner.trace.parallel.errors import CannotSplitError


def cut_models(module: Any, layout: Layout, say: Callable[[str], None]) -> None:
    """After `transformers.modeling_utils` has been imported."""
    kind, making = module.PreTrainedModel, Making()

    def cut(model: Any) -> None:
        """In place; a model whose class cannot be cut stays whole on every rank, which is said."""
        try:
            PipedModel(model, layout)
        except CannotSplitError as problem:
            say(f"{problem}: each rank has a whole one")

    kind.from_pretrained = classmethod(_from_pretrained(kind.from_pretrained.__func__, making, cut))
    making.follow(kind, cut)


def is_piped(model: Any) -> bool:
    """Whether a rank holds a stage of the model alone."""
    return any(getattr(module, "_pipeline", None) is not None for module in model.modules())


def _from_pretrained(original: Any, making: Making, cut: Callable[[Any], None]) -> Any:
    @functools.wraps(original)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with making.load():
            found = original(cls, *args, **kwargs)
        if not making.loading:
            cut(found[0] if isinstance(found, tuple) else found)
        return found

    return from_pretrained
