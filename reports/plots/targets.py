"""`--plot [KIND:]FILE`: which plot goes to which file, refused before any work where that makes no sense."""

import re
from dataclasses import dataclass
from pathlib import PurePath

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.reports.requires import need_matplotlib

OF_PLAN = {
    "timeline": "memory over one step, by category",
    "breakdown": "what fills the devices, plan by plan",
    "pareto": "memory against speed of every candidate",
    "stages": "memory of each rank of a pipeline",
    "ranks": "memory of each kind of rank, where the model is not shared out evenly",
    "bubble": "when each rank of a pipeline computes, and when it waits",
    "scaling": "memory and speed against the number of GPUs",
    "sequence": "memory against sequence length and micro batch",
}
OF_SWEEP = {
    "heatmap": "verdict, memory and speed of every point",
    "curve": "memory and speed against the first option, a line for each value of the second",
}
KINDS = {**OF_PLAN, **OF_SWEEP}
PICTURES = (".png", ".svg", ".pdf")
_KIND = re.compile(r"[A-Za-z][A-Za-z-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotTarget:
    """One plot that is wanted."""

    kind: str
    path: str

    @property
    def form(self) -> str:
        """`png`, `svg`, `pdf` or `csv`."""
        return PurePath(self.path).suffix.lower().removeprefix(".")


def read_target(text: str, *, sweeping: bool = False) -> PlotTarget:
    """`FILE` alone is the timeline, or the heat map of a sweep. UsageError for what cannot be drawn."""
    kind, colon, path = text.partition(":")
    if not colon or not _KIND.fullmatch(kind) or len(kind) == 1:
        kind, path = ("heatmap" if sweeping else "timeline"), text
    if kind not in KINDS:
        hint = did_you_mean(kind, tuple(KINDS), limit=1)
        raise UsageError(f"--plot {text[:80]}: there is no plot {kind[:40]!r}; there are {', '.join(KINDS)}.{hint}")
    if sweeping != (kind in OF_SWEEP):
        fitting = ", ".join(OF_SWEEP if sweeping else OF_PLAN)
        why = "of a sweep there are" if sweeping else "without --sweep there are"
        raise UsageError(f"--plot {text[:80]}: {why} {fitting}")
    if not path:
        raise UsageError(f"--plot {text[:80]}: name a file, such as {kind}:plan.svg")
    _check_ending(kind, path)
    return PlotTarget(kind=kind, path=path)


def _check_ending(kind: str, path: str) -> None:
    if kind == "timeline":
        from gpu_plan.reports.plots.timeline_file import check_ending

        check_ending(path)
        return
    ending = PurePath(path).suffix.lower()
    if ending == ".csv":
        raise UsageError(f"--plot {kind}:{path} draws a picture: its data is what --format csv writes")
    if ending not in PICTURES:
        raise UsageError(f"--plot {kind}:{path}: name a file that ends in .png, .svg or .pdf")
    need_matplotlib(f"--plot {kind}:{path}")
