"""Budgets and thresholds as people write them: `fits 8xA100-40GB`, `peak <= 36 GiB`, `5%`, `512MiB`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.units import format_bytes, parse_bytes

LIMITED: Mapping[str, str] = {
    "peak": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "used": "device_used_bytes",
    "host": "host.most_bytes",
}
"""Words of a budget, and the figures that they limit: as torch's `max_memory_allocated` and `max_memory_reserved`, as
nvidia-smi, and the RAM of a node."""
_LIMIT = re.compile(r"\s*([a-z]+)\s*<=?\s*(\S.*?)\s*")
_FITS = re.compile(r"\s*fits(?:\s+(\S+))?\s*")
_PERCENT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """An absolute limit of a job: either a cluster that it must fit, or a figure that must not pass a size."""

    text: str
    fits: bool = False
    gpus: str | None = None
    """With `fits`: as `--gpus`; None for the job's own."""
    figure: str | None = None
    """Otherwise: a value of LIMITED."""
    bytes: int = 0


def parse_budget(text: str) -> Budget:
    """InputError in one line for what is no budget."""
    fits = _FITS.fullmatch(text)
    if fits is not None:
        return Budget(text=text, fits=True, gpus=fits[1])
    limit = _LIMIT.fullmatch(text)
    if limit is None:
        raise InputError(f"budget {text!r:.60} is not understood: write it like 'fits 8xA100-40GB' or 'peak <= 36 GiB'")
    figure = LIMITED.get(limit[1])
    if figure is None:
        hint = did_you_mean(limit[1], tuple(LIMITED), limit=1)
        raise InputError(
            f"budget {text!r:.60} limits {limit[1]!r:.20}, which is not one of {', '.join(LIMITED)}.{hint}"
        )
    return Budget(text=text, figure=figure, bytes=parse_bytes(limit[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How much growth is too much: passed as soon as either part is."""

    text: str
    share: float | None = None
    bytes: int | None = None

    def passed_by(self, before: int, after: int) -> bool:
        """Whether the growth from `before` to `after` is more than is allowed."""
        growth = after - before
        if growth <= 0:
            return False
        beyond_share = self.share is not None and growth > before * self.share
        return beyond_share or (self.bytes is not None and growth > self.bytes)


def parse_threshold(text: str) -> Threshold:
    """`5%`, `512MiB`, or both with a comma. InputError in one line for anything else."""
    share: float | None = None
    size: int | None = None
    for part in text.split(","):
        percent = _PERCENT.fullmatch(part.strip())
        if percent is not None and share is None:
            share = float(percent[1]) / 100
        elif percent is None and size is None and part.strip():
            size = _size(part.strip(), text)
        else:
            raise InputError(f"threshold {text!r:.60} is not understood: write it like '5%', '512MiB' or '5%, 512MiB'")
    return Threshold(text=text.strip(), share=share, bytes=size)


def _size(part: str, whole: str) -> int:
    try:
        return parse_bytes(part)
    except InputError:
        raise InputError(
            f"threshold {whole!r:.60} is not understood: write it like '5%', '512MiB' or '5%, 512MiB'"
        ) from None


WARN = parse_threshold("1%")
FAIL = parse_threshold("5%")
"""Of a job that names none."""


def grown(before: int, after: int) -> str:
    """`33.1 -> 37.1 GiB (+4.0 GiB, +12.1%)`."""
    change = after - before
    sign = "+" if change >= 0 else "-"
    share = f", {change / before:+.1%}" if before else ""
    return f"{format_bytes(before)} -> {format_bytes(after)} ({sign}{format_bytes(abs(change))}{share})"
