"""The loops over a log in C (`_streams.c`), where they were built."""

from typing import Any

try:
    from gpu_plan.planner.memory.lead import _streams  # type: ignore[attr-defined]
except ImportError:
    _streams = None

_INTERFACE = 2
"""Of its functions; what was built from other source is left alone."""
COMPILED = getattr(_streams, "INTERFACE", None) == _INTERFACE
"""Whether they are there."""
streams: Any = _streams

__all__ = ["COMPILED", "streams"]
