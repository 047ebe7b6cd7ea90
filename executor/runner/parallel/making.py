"""Which of transformers' models a script is making: only the outermost one is spread or cut, its parts with it."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref


class Making:
    """The model that is being made, and whether it is filled from files."""

    def __init__(self) -> None:
        self.loading = 0
        self._outermost: Callable[[], Any] = _nobody

    @contextmanager
    def load(self) -> Iterator[None]:
        """While `from_pretrained` makes a model and fills it."""
        self.loading += 1
        try:
            yield
        finally:
            self.loading -= 1

    def follow(self, kind: Any, made: Callable[[Any], None]) -> None:
        """Wraps the constructor of `kind`, PreTrainedModel, and its end, `post_init`.

        `made` takes each outermost model that the script makes from a configuration, with weights, and nothing else.
        """
        kind.__init__ = self._init(kind.__init__)
        kind.post_init = self._post_init(kind.post_init, made)

    def _init(self, original: Any) -> Any:
        @functools.wraps(original)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            if self._outermost() is None:
                self._outermost = ref(model)
            original(model, *args, **kwargs)

        return init

    def _post_init(self, original: Any, made: Callable[[Any], None]) -> Any:
        @functools.wraps(original)
        def post_init(model: Any) -> None:
            original(model)
            if self._outermost() is not model:
                return
            self._outermost = _nobody
            if not self.loading and not any(each.is_meta for each in model.parameters()):
                made(model)

        return post_init


def _nobody() -> None:
    """As a reference to a model that is gone."""
