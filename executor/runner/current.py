"""The recorder of this rank, for a script that has more to tell than the hooks see."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.executor.runner.recorder import Recorder

_current: "Recorder | None" = None


def set_recorder(recorder: "Recorder") -> None:
    """Called once, before the script runs."""
    global _current
    _current = recorder


def current_recorder() -> "Recorder | None":
    """The recorder; None where the script runs without the runner."""
    return _current
