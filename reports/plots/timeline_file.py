"""The timeline of a step as a file: a picture to look at, CSV to compute with.   I/O"""

import csv
import importlib.util
import io
import os
from pathlib import PurePath

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.files import write_bytes
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.reports.clean import one_line

PICTURES = (".png", ".svg", ".pdf")
ENDINGS = (*PICTURES, ".csv")


def check_ending(path: str) -> None:
    """UsageError for a file that is neither picture nor CSV, and for a picture where nothing can draw it."""
    ending = PurePath(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(
            f"--plot {path}: name a file that ends in .png, .svg or .pdf (a picture) or .csv (every event)"
        )
    if ending in PICTURES and importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            f"--plot {path}: pictures are drawn by matplotlib, which is not installed:"
            " pip install 'gpu-plan[plots]', or name a .csv file"
        )


def write_timeline(timeline: Timeline, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Writes what the file's ending says, whole or not at all."""
    ending = PurePath(path).suffix.lower()
    if ending == ".csv":
        content = as_csv(timeline).encode()
    else:
        from gpu_plan.reports.plots.timeline import as_picture

        content = as_picture(timeline, ending.removeprefix("."))
    write_bytes(path, content, force=force)


def as_csv(timeline: Timeline) -> str:
    """One line for each event of the step; bytes, and what stands by category after it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ("event", "phase", "category", "module", "operator", "change", "allocated", "reserved")
    writer.writerow((*head, *timeline.start, "is_peak"))
    for number, (moment, levels) in enumerate(zip(timeline.moments, timeline.levels(), strict=True)):
        named = (moment.phase, moment.category, moment.module, moment.operator)
        figures = (moment.change, moment.allocated, moment.reserved)
        writer.writerow((number, *map(one_line, named), *figures, *levels, int(number == timeline.peak)))
    return stream.getvalue()
