"""Models of transformers are cut into stages where the script loads or makes them.

Each rank makes the whole model first, as the script does; the weights are then the first rank's, since others may have
drawn their own, and what belongs to other ranks' stages is let go of.
"""

import functools
from collections.abc import Callable
from typing import Any
from weakref import ref

from gpu_plan.executor.runner.parallel.piped.layout import Layout
from gpu_plan.executor.runner.parallel.piped.run import PipedModel
from gpu_plan.planner.trace.parallel.errors import CannotSplitError


def cut_models(module: Any, layout: Layout, say: Callable[[str], None]) -> None:
    """After `transformers.modeling_utils` has been imported."""
    kind = module.PreTrainedModel
    making = _Making(layout, say)
    kind.from_pretrained = classmethod(_from_pretrained(kind.from_pretrained.__func__, making))
    kind.__init__ = _init(kind.__init__, making)
    kind.post_init = _post_init(kind.post_init, making)


def is_piped(model: Any) -> bool:
    """Whether a rank holds a stage of the model alone."""
    return any(getattr(module, "_pipeline", None) is not None for module in model.modules())


class _Making:
    """Which model is being made: only the outermost one is cut."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self.layout = layout
        self.say = say
        self.loading = 0
        self.outermost: Callable[[], Any] = lambda: None

    def cut(self, model: Any) -> None:
        """In place; a model whose class cannot be cut stays whole on every rank, which is said."""
        try:
            PipedModel(model, self.layout)
        except CannotSplitError as problem:
            self.say(f"{problem}: each rank has a whole one")


def _from_pretrained(original: Any, making: _Making) -> Any:
    @functools.wraps(original)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        making.loading += 1
        try:
            found = original(cls, *args, **kwargs)
        finally:
            making.loading -= 1
        if not making.loading:
            making.cut(found[0] if isinstance(found, tuple) else found)
        return found

    return from_pretrained


def _init(original: Any, making: _Making) -> Any:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if making.outermost() is None:
            making.outermost = ref(self)
        original(self, *args, **kwargs)

    return init


def _post_init(original: Any, making: _Making) -> Any:
    @functools.wraps(original)
    def post_init(self: Any) -> None:
        original(self)
        if making.outermost() is not self:
            return
        making.outermost = lambda: None
        if not making.loading and not any(each.is_meta for each in self.parameters()):
            making.cut(self)

    return post_init
