"""What tracing needs installed, asked before anything of it is imported (I/O)."""

from collections.abc import Iterator
from importlib.util import find_spec

from gpu_plan.planner.errors import UsageError

_TRACES = ("torch", "transformers", "accelerate")


_INSTALL = "pip install 'gpu-plan[{extra}]'"


class NotTraceableError(UsageError):
    """What would have to be traced, and cannot be: nothing that traces is installed."""


def needs_tracing(model: str, why: str = "no trace of this is shipped", extra: str = "trace") -> None:
    """NotTraceableError, in one line, where a model has to be traced and what traces it is not installed.

    `extra` is the one that brings it, with what else the job needs.
    """
    absent = [name for name in _TRACES if find_spec(name) is None]
    if absent:
        raise NotTraceableError(
            f"{model}: {why}, and tracing needs {', '.join(absent)}: {_INSTALL.format(extra=extra)}"
        )


def install_line(problem: ImportError) -> str | None:
    """What to do where an import failed: of what traces, or of something that it asks for itself; None for others."""
    project = (problem.name or "").partition(".")[0]
    if project in _TRACES:
        return f"this needs {project}: {_INSTALL.format(extra='trace')}"
    asked = next((name for name in _importing(problem) if name in _TRACES), None)
    if asked is None:
        return None
    return f"{asked}, as it is installed, cannot be imported: {str(problem).splitlines()[0].rstrip('.')}"


def _importing(problem: ImportError) -> Iterator[str]:
    """Projects whose modules were at it, outermost first."""
    at = problem.__traceback__
    while at is not None:
        yield str(at.tb_frame.f_globals.get("__name__")).partition(".")[0]
        at = at.tb_next
