"""Bytes in and out. GiB is 1024³ and GB is 1000³, in what is read and in what is printed."""

import math
import re
from collections.abc import Iterable

from gpu_plan.planner.errors import InputError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1024**4,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below numerator / denominator."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` not below `value`."""
    return ceil_div(value, multiple) * multiple


def median(values: Iterable[float]) -> float:
    """statistics.median, whose module takes longer to import than all that is asked of it."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def parse_bytes(text: str) -> int:
    """Bytes from `14 GiB`, `80GB`, `512MiB`, `1073741824`. Raises InputError on anything else."""
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise InputError(f"size {text!r} is not understood: write it like 14GiB, 80GB or 512MiB")
    value = float(match.group(1)) * factor
    if not math.isfinite(value) or value > 2**63:
        raise InputError(f"size {text!r} is larger than any memory")
    return round(value)


def format_gib(num_bytes: int, digits: int = 1) -> str:
    """`38.2` for 41 017 000 000 bytes: the number of GiB, without the unit."""
    return f"{num_bytes / GIB:.{digits}f}"


def format_bytes(num_bytes: int) -> str:
    """A size with a binary unit that keeps three to four digits: `812 B`, `9.5 MiB`, `38.2 GiB`."""
    size = abs(num_bytes)
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} B"


def format_short(value: float) -> str:
    """A positive figure in so many digits as matter, never with an exponent: `7,502`, `4.3`, `0.35`, `0.000012`."""
    if value >= 10 or value <= 0:
        return f"{value:,.0f}"
    return f"{value:.{max(1, 1 - math.floor(math.log10(value)))}f}"


def format_dollars(value: float) -> str:
    """`$1,234`, `$12.30`, `$0.42`, `$0.0042`: to the cent where cents matter, two digits of what is less than one."""
    if value >= 100:
        return f"${value:,.0f}"
    return f"${value:.2f}" if value >= 0.1 or value <= 0 else f"${format_short(value)}"


def format_hours(hours: float) -> str:
    """`3.9 hours`, `4.2 minutes`; of what is long days or years beside them: `178 hours (7.4 days)`."""
    if hours < 1:
        return f"{format_short(hours * 60)} minutes"
    if hours < 48:
        return f"{hours:.1f} hours"
    days = hours / 24
    return f"{hours:,.0f} hours ({days:,.1f} days)" if days < 730 else f"{hours:,.0f} hours ({days / 365:,.1f} years)"


def format_count(count: int) -> str:
    """A parameter or token count: `8.03B`, `596M`, `12.3K`."""
    for factor, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= factor:
            value = count / factor
            return f"{value:.2f}{unit}" if value < 10 else f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"
    return str(count)
