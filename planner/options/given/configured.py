"""What a project's configuration says of a job, by named values."""

import os
from pathlib import Path

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.options.config import JobOptions
from gpu_plan.planner.options.given.named import Named, named


def configured(options: JobOptions) -> Named:
    """The options; a path of a model is relative to the file. InputError in one line, file and key named."""
    values = dict(options.values)
    try:
        if "model" in values:
            values["model"] = _model(str(values["model"]), options.path.parent)
        return named(values)
    except InputError as problem:
        raise InputError(f"{options.path}: {problem}") from None


def _model(text: str, folder: Path) -> str:
    """The model as seen from the working directory."""
    given = Path(os.path.expanduser(text))
    below = folder / given
    if given.is_absolute() or "\0" in text or not (text.startswith((".", "~")) or os.path.exists(below)):
        return text
    relative = os.path.relpath(below)
    return str(below) if relative.startswith("..") else f"./{relative}"
