"""The table of what is mirrored or patched, read from `held.csv` (I/O)."""

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

from gpu_plan.planner.plain.values import dataclass

PATH = Path(__file__).with_name("held.csv")
_VERSION = "# "


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """One symbol of another project that something here mirrors, patches or imports though it is private."""

    project: str
    """Name of the distribution, or of the repository where no wheel holds the source."""
    version: str
    """Version that was read; empty where the mirroring code does not say."""
    file: str
    """Path inside the installed packages (`torch/nn/parallel/distributed.py`), else inside the repository."""
    symbol: str
    """Dotted name inside the file; empty: the file but for its symbols that stand in the table themselves."""
    digest: str
    """Of the symbol's code; empty for C++, CUDA and projects that are not installed: only their version is held."""
    used_by: str
    """Modules of this project that mirror or patch it, separated by spaces."""


def held_versions() -> dict[str, str]:
    """Distribution -> version whose digests are held: the table's first lines, all that equal versions need."""
    found: dict[str, str] = {}
    with PATH.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith(_VERSION):
                break
            project, version = line.removeprefix(_VERSION).split()
            found[project] = version
    return found


def held() -> list[Held]:
    """Every row of the table."""
    with PATH.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(line for line in file if not line.startswith(_VERSION))
        next(rows)
        return [Held(*row) for row in rows]


def table_text(rows: Iterable[Held]) -> str:
    """`rows` as the table's text, sorted; versions come first."""
    ordered = sorted(rows)
    versions = {row.project: row.version for row in ordered if row.digest}
    text = io.StringIO("".join(f"{_VERSION}{project} {version}\n" for project, version in versions.items()))
    text.seek(0, io.SEEK_END)
    rows_of = csv.writer(text, lineterminator="\n")
    rows_of.writerow(field.name for field in fields(Held))
    rows_of.writerows(astuple(row) for row in ordered)
    return text.getvalue()
