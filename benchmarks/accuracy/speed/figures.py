"""What scored step times amount to: by group, machine, strategy and length; sources left out; plans in their order."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

Line = Mapping[str, Any]
Figures = dict[str, float | int]

FEWEST_PLANS = 3
"""An order of two plans is right or wrong; a rank correlation needs more."""

_LENGTHS = ((1024, "to 1024"), (2048, "to 2048"), (8192, "to 8192"))
CUTS: Mapping[str, Callable[[Line], str]] = {
    "group": lambda line: str(line["group"]),
    "GPU": lambda line: str(line["gpus"]).rpartition("x")[2],
    "strategy": lambda line: str(line["strategy"]),
    "sequence length": lambda line: next((name for most, name in _LENGTHS if line["seq_len"] <= most), "above 8192"),
    "source": lambda line: source_of(line),
}


def source_of(line: Line) -> str:
    """The repository that printed the row."""
    return str(line["source"]).partition(":")[0] or str(line["group"])


def figures(lines: Sequence[Line]) -> Figures:
    """Errors as fractions: median and 90th percentile (nearest rank) of the absolute ones, `bias` the median of
    predicted / measured − 1, `inside` the share in the interval, `half_width` its median half-width over the time."""
    ratios = [line["ratio"] for line in lines]
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    return {
        "rows": len(lines),
        "median": median(errors),
        "p90": errors[math.ceil(0.9 * len(errors)) - 1],
        "bias": median(ratios) - 1,
        "inside": fmean(bool(line["inside"]) for line in lines),
        "half_width": median((line["high"] - line["low"]) / 2 / line["predicted"] for line in lines),
    }


def cut(lines: Iterable[Line], by: Callable[[Line], str]) -> dict[str, Figures]:
    """Figures of each value of a cut."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[by(line)].append(line)
    return {name: figures(own) for name, own in sorted(found.items())}


def sources_left_out(lines: Sequence[Line]) -> dict[str, dict[str, float | int]]:
    """For each source: its errors as they are, and had the level been set by all the other sources.

    `others` is the median ratio of the other sources, each counting once. Where `corrected` is worse than `median` a
    constant learnt from rows would have done harm.
    """
    by_source: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        by_source[source_of(line)].append(line["ratio"])
    levels = {name: median(ratios) for name, ratios in by_source.items()}
    found: dict[str, dict[str, float | int]] = {}
    for name, ratios in sorted(by_source.items()):
        others = [level for other, level in levels.items() if other != name]
        if not others:
            continue
        level = median(others)
        found[name] = {
            "rows": len(ratios),
            "median": median(abs(ratio - 1) for ratio in ratios),
            "others": level,
            "corrected": median(abs(ratio / level - 1) for ratio in ratios),
        }
    return found


def orders(lines: Iterable[Line]) -> dict[str, dict[str, float | int]]:
    """Where a source varies only the plan of one job: rank correlation, and what the plan predicted fastest loses.

    A job is a source's model, machine, length and kind of training; times are per token of a device. `regret` is how
    much longer the plan that is predicted fastest takes than the fastest measured one.
    """
    jobs: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        key = (source_of(line), line["group"], line["model"], line["gpus"], line["seq_len"])
        jobs[" ".join(str(part) for part in key)].append(line)
    return {job: _order(own) for job, own in sorted(jobs.items()) if len({_plan(line) for line in own}) >= FEWEST_PLANS}


def _plan(line: Line) -> tuple[Any, ...]:
    return line["strategy"], line["micro_batch"], line.get("accumulation_steps"), line["checkpointing"]


def _order(lines: Sequence[Line]) -> dict[str, float | int]:
    measured = [line["measured"] / line["tokens"] for line in lines]
    predicted = [line["predicted"] / line["tokens"] for line in lines]
    chosen = min(range(len(lines)), key=predicted.__getitem__)
    return {
        "plans": len(lines),
        "correlation": rank_correlation(measured, predicted),
        "regret": measured[chosen] / min(measured) - 1,
    }


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, equal values sharing the mean of their ranks; 1 where either does not vary."""
    mine, theirs = _ranks(one), _ranks(other)
    mean = fmean(mine)
    together = sum((a - mean) * (b - mean) for a, b in zip(mine, theirs, strict=True))
    apart = math.sqrt(sum((a - mean) ** 2 for a in mine) * sum((b - mean) ** 2 for b in theirs))
    return together / apart if apart else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(o < value for o in values) + (sum(o == value for o in values) - 1) / 2 for value in values]
