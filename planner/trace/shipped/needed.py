"""What tracing needs installed, asked before anything of it is imported (I/O)."""

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


def install_line(module: str | None) -> str | None:
    """What to do where an import of `module` failed; None where it is none of what traces."""
    project = (module or "").partition(".")[0]
    return f"this needs {project}: {_INSTALL.format(extra='trace')}" if project in _TRACES else None
