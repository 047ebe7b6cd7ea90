"""Where the files of installed projects lie, found without importing them (I/O)."""

import functools
from importlib.util import find_spec
from pathlib import Path

from gpu_plan.planner.upstream.digests import Source


@functools.cache
def site_of(package: str) -> Path | None:
    """Folder in which `package` lies; None where it is not installed."""
    spec = find_spec(package) if package.isidentifier() else None  # a dotted name would be imported to be found
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]).parent if places else None


@functools.cache
def source_of(file: str) -> Source | None:
    """The installed file `package/path.py`, parsed; None where there is none."""
    site = site_of(file.partition("/")[0])
    if site is None:
        return None
    try:
        return Source((site / file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
