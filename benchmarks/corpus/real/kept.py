"""The loop of a comparison: cases one after another, rows kept; what is not named keeps its earlier row (I/O)."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_words(words: list[str]) -> argparse.Namespace:
    """FOLDER of the checkouts, `--packages FOLDER`, `--scripts NAME...`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--scripts", nargs="+", default=[])
    asked = parser.parse_args(words)
    asked.folder = asked.folder.resolve()
    return asked


def asked_for(scripts: Iterable[str], name: str) -> bool:
    """Whether a case is run: by a part of its name, or where none is named."""
    parts = list(scripts)
    return not parts or any(part in name for part in parts)


def keep(row: Row, results: Path, as_markdown: Callable[[list[Row]], str], *, by: tuple[str, ...]) -> None:
    """Puts a row into `results`, where one that is the same `by` these keys stood, and writes the page of all."""
    rows: list[Row] = json.loads(results.read_text()) if results.exists() else []
    same = [at for at, old in enumerate(rows) if all(old[key] == row[key] for key in by)]
    if same:
        rows[same[0]] = row
    else:
        rows.append(row)
    results.write_text(json.dumps(rows, indent=1) + "\n")
    results.with_suffix(".md").write_text(as_markdown(rows))
