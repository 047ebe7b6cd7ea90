"""What cannot run where no value is computed: torch's long words about it in one line."""

import os
import re
import traceback
from pathlib import Path

_ABOUT_VALUES = re.compile(r"\bmeta\b|\bMeta tensors?\b|data-independent|CUDA generator|Torch not compiled with CUDA")
_INSTALLED = f"site-packages{os.sep}"


def needs_values(problem: BaseException, home: Path) -> str | None:
    """File, line and reason where `problem` came of a tensor without values; None for every other problem."""
    text = str(problem)
    frames = traceback.extract_tb(problem.__traceback__)
    if not isinstance(problem, (RuntimeError, TypeError)) or not _ABOUT_VALUES.search(text) or not frames:
        return None
    own = [
        frame for frame in frames if frame.filename.startswith(f"{home}{os.sep}") and _INSTALLED not in frame.filename
    ]
    if not own:
        return None
    place = f"{os.path.relpath(own[-1].filename, home)}:{own[-1].lineno}"
    reason = " ".join(re.split(r"(?<=[a-z)])[.;] ", text.strip(), maxsplit=1)[0].split())[:160]
    return (
        f"{place} needs values, and nothing computes any here ({type(problem).__name__}: {reason}):"
        " move that out of the measured block"
    )
