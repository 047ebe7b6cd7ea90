"""What stands for a stream, an event, a graph or a device's context under capture: nothing waits for anything."""

import contextlib
from typing import Any


class NoStream(contextlib.nullcontext[None]):
    """Any of them, with whatever arguments; each of its methods gives 0.0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: 0.0
