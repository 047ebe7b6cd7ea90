"""Which rows of a truth file follow from others of it to their last digit: times that were computed, not measured.

    .venv/bin/python -m benchmarks.accuracy.speed.composed FILE [--group NAME]

Jobs that differ in one number alone are put in the order of it: micro batches, or layers. Where three or more of them
lie on one line, those between the ends are told by the ends. A measured time scatters by a part in a thousand or more;
what lies on the line to a part in a million is a sum. Exit code 2 where FILE is no truth file or has no such jobs.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping

from benchmarks.accuracy.row import Row, field
from benchmarks.accuracy.speed.told import tell

EXACT = 1e-6
"""Relative distance from the line up to which a time was not measured."""
_VARIED = {"micro batches": "num_microbatches", "layers": "arch.num_layers"}
_SAME = (
    "arch.hidden_size", "arch.num_attention_heads", "arch.num_layers", "seq_len", "micro_batch_per_gpu",
    "num_microbatches", "parallel.tp", "parallel.pp", "parallel.dp", "gpu.model",
)  # fmt: skip


def distances(rows: Iterable[Row], varied: str) -> list[float]:
    """Relative distance of every time between the ends of its line from that line, `varied` along it."""
    jobs: dict[tuple[object, ...], dict[float, float]] = defaultdict(dict)
    for row in rows:
        at, seconds = field(row, varied), field(row, "measured.step_time_s")
        told = field(row, "printed.iteration_time_ms")
        if not isinstance(at, int) or not isinstance(seconds, float | int):
            continue
        key = tuple(json.dumps(field(row, one)) for one in _SAME if one != varied)
        jobs[key][at] = float(told) if isinstance(told, str) else float(seconds)
    return [one for times in jobs.values() for one in _between(times)]


def _between(times: Mapping[float, float]) -> list[float]:
    first, last = min(times), max(times)
    slope = (times[last] - times[first]) / (last - first) if last > first else 0.0
    return [
        abs(seconds / (times[first] + slope * (at - first)) - 1) for at, seconds in times.items() if first < at < last
    ]


def main(arguments: list[str] | None = None) -> int:
    """Prints how many times lie on their line, and how far the farthest is off it."""
    return tell("composed", arguments, _on_their_lines, " has no three jobs that differ in one number alone")


def _on_their_lines(rows: list[Row]) -> str:
    found = {name: distances(rows, varied) for name, varied in _VARIED.items()}
    return "\n".join(
        f"{name}: {sum(one < EXACT for one in off)} of {len(off)} times between two others lie on their line;"
        f" farthest {max(off):.1e}"
        for name, off in found.items()
        if off
    )


if __name__ == "__main__":
    sys.exit(main())
