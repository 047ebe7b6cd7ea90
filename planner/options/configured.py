"""From a configuration file's options to the words of a command line."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpu_plan.planner.options.config import JobOptions


def job_words(options: JobOptions) -> dict[str, list[str]]:
    """Words by key: `seq-len = 2048` as `--seq-len 2048`, `model` alone. A path of a model is relative to the file."""
    found: dict[str, list[str]] = {}
    for key, value in options.values.items():
        if key == "model":
            found[key] = [_model(str(value), options.path.parent)]
        elif key == "set" and isinstance(value, Mapping):
            found[key] = [word for name, item in value.items() for word in ("--set", f"{name}={_text(item)}")]
        else:
            found[key] = list(_words(key, value))
    return found


def _words(key: str, value: object) -> Iterator[str]:
    if value is True:
        yield f"--{key}"
    elif value is False:
        # What is off by default needs no word; what can be declined has one.
        if key in _DECLINED:
            yield f"--no-{key}"
    else:
        yield from (f"--{key}", ",".join(value) if isinstance(value, list) else str(value))


_DECLINED = ("compile", "fused-loss")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model(text: str, folder: Path) -> str:
    """The model as seen from the working directory."""
    named = Path(os.path.expanduser(text))
    below = folder / named
    if named.is_absolute() or not (text.startswith((".", "~")) or below.exists()):
        return text
    relative = os.path.relpath(below)
    return str(below) if relative.startswith("..") else f"./{relative}"
