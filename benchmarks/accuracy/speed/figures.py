"""What scored step times amount to: by group, machine, strategy and length; sources left out; plans in their order."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

Line = Mapping[str, Any]
Figures = dict[str, float | int]

NEAR = 1.1
"""How many times as long as another a plan is expected to take at most, to be near it."""
FEWEST_PLANS = 3
"""An order of two plans is right or wrong; a rank correlation needs more."""

_SUMMED = ("vtrain-single ",)
"""Beginnings of groups whose times their source has added up (benchmarks/results/unseen_seconds.md, by `composed`)."""
_LENGTHS = ((1024, "to 1024"), (2048, "to 2048"), (8192, "to 8192"))
CUTS: Mapping[str, Callable[[Line], str]] = {
    "times": lambda line: "added up by the source" if str(line["group"]).startswith(_SUMMED) else "measured",
    "group": lambda line: str(line["group"]),
    "GPU": lambda line: str(line["gpus"]).rpartition("x")[2],
    "strategy": lambda line: str(line["strategy"]),
    "degrees": lambda line: str(line.get("degrees") or "data parallel alone"),
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


def ratios(lines: Iterable[Line]) -> dict[str, dict[str, float | int]]:
    """Where a source varies only the plan of one job: by what factor, less one, the ratio of two predicted times is off
    the ratio of the measured ones; of all pairs, and of those expected to be within `NEAR` of each other."""
    jobs: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in lines:
        key = (source_of(line), *(str(line[name]) for name in ("group", "model", "gpus", "seq_len")))
        jobs[key].append(line)
    pairs = [pair for own in jobs.values() for pair in combinations(own, 2) if _plan(pair[0]) != _plan(pair[1])]
    near = [pair for pair in pairs if 1 / NEAR < _expected_ratio(*pair) < NEAR]
    return {name: _off(own) for name, own in (("all", pairs), ("within a tenth of each other", near)) if own}


def _expected_ratio(one: Line, other: Line) -> float:
    return float(_per_token(one, "predicted") / _per_token(other, "predicted"))


def _off(pairs: Sequence[tuple[Line, Line]]) -> dict[str, float | int]:
    off = sorted(max(one["ratio"] / other["ratio"], other["ratio"] / one["ratio"]) - 1 for one, other in pairs)
    return {"pairs": len(off), "median": median(off), "p90": off[math.ceil(0.9 * len(off)) - 1]}


def between_strategies(lines: Iterable[Line]) -> dict[str, dict[str, float | int]]:
    """Where a source ran one job under several strategies, each with its fastest plan: their order, as in `orders`."""
    jobs: dict[str, dict[str, Line]] = defaultdict(dict)
    for line in lines:
        own = jobs[" ".join(str(line[key]) for key in ("group", "model", "gpus", "seq_len"))]
        best = own.setdefault(line["strategy"], line)
        if _per_token(line, "measured") < _per_token(best, "measured"):
            own[line["strategy"]] = line
    return {job: _order(list(own.values())) for job, own in sorted(jobs.items()) if len(own) > 1}


def over_devices(lines: Iterable[Line]) -> dict[str, dict[str, float | int]]:
    """Where a source ran one plan on several numbers of devices: tokens a second and device on most of them over those
    on fewest, measured and predicted. Of the plans that were run on both, the mean."""
    jobs: dict[tuple[str, ...], dict[tuple[Any, ...], dict[int, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        job = (source_of(line), str(line["group"]), str(line["model"]))
        jobs[job][(*_plan(line), line["seq_len"])][_devices(line)] = line
    found: dict[str, dict[str, float | int]] = {}
    for job, plans in sorted(jobs.items()):
        pairs = [(own[min(own)], own[max(own)]) for own in plans.values() if len(own) > 1]
        if pairs:
            found[" ".join(job)] = {
                "plans": len(pairs),
                "fewest": min(_devices(few) for few, _ in pairs),
                "most": max(_devices(many) for _, many in pairs),
                **{
                    key: fmean(_per_token(few, key) / _per_token(many, key) for few, many in pairs)
                    for key in ("measured", "predicted")
                },
            }
    return found


def _per_token(line: Line, key: str) -> float:
    """Seconds of one token of a device."""
    return float(line[key]) / float(line["tokens"])


def _devices(line: Line) -> int:
    """`4x8xH100` as 32."""
    return math.prod(int(part) for part in str(line["gpus"]).split("x")[:-1] if part.isdigit())


def _plan(line: Line) -> tuple[Any, ...]:
    return (
        line["strategy"],
        line.get("degrees"),
        line["micro_batch"],
        line.get("accumulation_steps"),
        line["checkpointing"],
    )


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
