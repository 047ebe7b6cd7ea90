"""Both comparisons as a page: `python -m benchmarks.accuracy.megatron.report FOLDER`.

FOLDER holds what was measured: megatron_memory.json and megatron_golden.json.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.accuracy.megatron import b200, golden
from benchmarks.accuracy.megatron.jobs import profile

PAGE = Path(__file__).parents[2] / "results" / "megatron.md"
_GIB = 2**30


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where megatron_memory.json and megatron_golden.json lie")
    folder: Path = parser.parse_args().folder
    PAGE.write_text("\n".join([*_head(), *_of_b200(folder), *_of_golden(folder), ""]), encoding="utf-8")


def _head() -> list[str]:
    return [
        "# Megatron-core beside what was measured",
        "",
        "Written by `python -m benchmarks.accuracy.megatron.report FOLDER`. Errors are of predicted / measured - 1, of",
        "peak allocated bytes; nothing is fitted to a row.",
        "",
    ]


def _of_b200(folder: Path) -> Iterator[str]:
    yield "## Eight B200, every rank\n"
    yield "| run | pipeline rank | predicted GiB | measured GiB | worst rank's error |\n|---|---|---|---|---|"
    errors = []
    for run in b200.runs(folder / "megatron_memory.json"):
        for rank, measured in enumerate(run.measured):
            peak = profile(run.job, rank).peak_allocated_bytes
            found = [peak / one - 1 for one in measured]
            errors += [abs(error) for error in found]
            worst = max(found, key=abs)
            shown = f"{min(measured) / _GIB:.2f} to {max(measured) / _GIB:.2f}"
            yield f"| {run.case} | {rank} | {peak / _GIB:.2f} | {shown} | {worst:+.2%} |"
    yield f"\n{_summary(errors)}.\n"


def _of_golden(folder: Path) -> Iterator[str]:
    yield "## Megatron-LM's own regression values, last rank\n"
    yield "| family | cases | rows | median | 95th percentile |\n|---|---|---|---|---|"
    by_case: dict[tuple[str, str], list[float]] = defaultdict(list)
    lines, left = [], Counter[str]()
    for row in golden.rows(folder / "megatron_golden.json"):
        if row.job is None:
            left[row.why] += 1
            continue
        peak = profile(row.job, row.job.layout.pipeline - 1).peak_allocated_bytes
        error = peak / row.measured - 1
        family = f"{row.family}, {row.gpu}"
        by_case[family, row.case].append(error)
        kernel = row.job.layout.attention
        lines.append(
            f"| {row.case} | {row.gpu} | {kernel} | {peak / _GIB:.3f} | {row.measured / _GIB:.3f} | {error:+.2%} |"
        )
    families = sorted({family for family, _ in by_case})
    for family in (*families, "all"):
        errors = [median(map(abs, found)) for (name, _), found in by_case.items() if family in (name, "all")]
        yield f"| {family} | {len(errors)} | | {median(errors):.2%} | {_percentile(errors, 0.95):.2%} |"
    yield f"\nEach case once for each GPU; not planned: {_words(left)}.\n"
    yield "| case | GPU | attention | predicted GiB | measured GiB | error |\n|---|---|---|---|---|---|"
    yield from lines


def _summary(errors: Sequence[float]) -> str:
    within = sum(error <= 0.01 for error in errors)
    return f"{within} of {len(errors)} ranks within 1 %, median {median(errors):.2%}, worst {max(errors):.2%}"


def _percentile(errors: Sequence[float], share: float) -> float:
    return sorted(errors)[min(len(errors) - 1, int(share * len(errors)))]


def _words(left: Counter[str]) -> str:
    return ", ".join(f"{why} ({count})" for why, count in left.most_common())


if __name__ == "__main__":
    main()
