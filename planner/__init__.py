"""Plan: GPU memory, strategies and speed of a training step, from one traced step of the real model class.

`from planner import plan, sweep` is the public Python API: see `planner.api`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.api import plan as plan
    from planner.api import sweep as sweep

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Names of the API, imported when they are first asked for: `import planner` costs nothing."""
    if name == "sweep":
        return import_module("planner.api").sweep
    if name == "plan":
        return import_module("planner.plan")
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
