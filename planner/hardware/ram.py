"""How much RAM this process may use: the machine's, or its control group's limit when that is smaller."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpu_plan.planner.errors import PreflightError

_MEMINFO = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def parse_meminfo(text: str) -> int | None:
    """Bytes of `MemTotal` in the text of /proc/meminfo."""
    match = _MEMINFO.search(text)
    return int(match.group(1)) * 1024 if match else None


def parse_limit(text: str) -> int | None:
    """Bytes of a control group limit; None for `max` and for what is no number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def smallest(total: int | None, limits: list[int | None]) -> int | None:
    """The smallest positive of the given sizes."""
    known = [size for size in (total, *limits) if size]
    return min(known) if known else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _limit_files() -> Iterator[Path]:
    """Version 2 limits from this process's group up to the root, then version 1's."""
    own = next((line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), "/")
    group = Path(own.lstrip("/"))
    for level in (group, *group.parents):
        yield _CGROUP_ROOT / level / "memory.max"
    yield _CGROUP_ROOT / "memory" / "memory.limit_in_bytes"


def machine_ram_bytes() -> int:
    """RAM in bytes; PreflightError where the system does not say."""
    limits = [parse_limit(_read(path)) for path in _limit_files()]
    found = smallest(parse_meminfo(_read(Path("/proc/meminfo"))), limits)
    if found is None:
        raise PreflightError("the size of this machine's RAM cannot be read from /proc/meminfo; name GPUs with --gpus")
    return found
