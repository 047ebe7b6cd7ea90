"""What published steps of pipelines say of one layer: whether rows of one model agree with each other.

    .venv/bin/python -m benchmarks.accuracy.speed.scheduled FILE [--group NAME]

Under 1F1B a step of m micro batches over p stages is m + p - 1 times a stage's forward and backward (Narayanan et al.,
arXiv 2104.04473), whatever a device is: seconds of a layer and sample, times its tensor parallel ranks, follow by
division. Embedding, head, optimizer and gradients are in them. Rows of one model, tensor parallel degree and micro
batch differ in nothing but what stages and data parallel ranks cost. Exit code 2 where FILE is no truth file or has no
such rows.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping

from benchmarks.accuracy.row import Row, field
from benchmarks.accuracy.speed.told import tell

Key = tuple[str, int, int]
"""Model, tensor parallel ranks, micro batch."""
_NAMES = ("num_microbatches", "micro_batch_per_gpu", "arch.num_layers", "parallel.pp", "parallel.tp")


def layer_seconds(rows: Iterable[Row]) -> dict[Key, dict[int, float]]:
    """Seconds of a layer and sample on one device's worth of ranks, by number of stages."""
    found: dict[Key, dict[int, float]] = defaultdict(dict)
    for row in rows:
        counts = [field(row, name) for name in _NAMES]
        seconds = field(row, "measured.step_time_s")
        if not all(isinstance(count, int) for count in counts) or not isinstance(seconds, float | int):
            continue
        micro_batches, samples, layers, stages, tensor = (int(count) for count in counts)  # type: ignore[call-overload]
        stage = seconds / (micro_batches + stages - 1)
        found[str(field(row, "model")), tensor, samples][stages] = stage / (layers / stages) / samples * tensor
    return dict(found)


def page(found: Mapping[Key, Mapping[int, float]]) -> str:
    """Markdown: a line for each model, tensor parallel degree and micro batch that several numbers of stages ran."""
    stages = sorted({count for each in found.values() for count in each})
    lines = [f"| model | TP | samples | {' | '.join(f'PP {count}' for count in stages)} | farthest |"]
    lines.append("|---" * (4 + len(stages)) + "|")
    for (model, tensor, samples), each in sorted(found.items()):
        if len(each) > 1:
            cells = [f"{each[count] * 1e3:.1f}" if count in each else "" for count in stages]
            farthest = max(each.values()) / min(each.values())
            lines.append(f"| {model} | {tensor} | {samples} | {' | '.join(cells)} | {farthest:.2f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Prints the table, milliseconds."""
    return tell("scheduled", arguments, _compared, ": no job that ran with several numbers of stages")


def _compared(rows: Iterable[Row]) -> str:
    found = {key: each for key, each in layer_seconds(rows).items() if len(each) > 1}
    return page(found) if found else ""


if __name__ == "__main__":
    sys.exit(main())
