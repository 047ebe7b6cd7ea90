"""`plan models [QUERY]`: the models of the shipped catalog."""

import argparse
import json
import sys
from typing import Any

from gpu_plan.planner.errors import ExitCode, InputError
from gpu_plan.planner.model.catalog_index import KINDS, CatalogEntry, nearest, search
from gpu_plan.planner.units import format_count

_COUNTED = {"ok": "matches", "ok-sibling": "sibling matches", "mismatch-explained": "differs, explained"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan models`."""
    parser.add_argument("query", nargs="?", default="", help="words that the id, family or class must hold")
    parser.add_argument("--kind", choices=KINDS, help="only models of this kind")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """List or search the catalog. Raises InputError if nothing matches."""
    found = search(args.query, args.kind)
    if not found:
        of_kind = f" of kind {args.kind}" if args.kind else ""
        raise InputError(
            f"no model in the catalog matches {args.query!r}{of_kind}: `plan models` lists them all."
            f"{nearest(args.query)}"
        )
    text = json.dumps(_document(found), indent=2) if args.json else _table(found)
    sys.stdout.write(text + "\n")
    return ExitCode.OK


def _document(entries: list[CatalogEntry]) -> dict[str, Any]:
    return {"schema_version": 1, "models": [_row(entry) for entry in entries]}


def _row(entry: CatalogEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "family": entry.family,
        "kind": entry.kind,
        "parameters": entry.parameters,
        "published_parameters": entry.published_params,
        "published_parameters_source": entry.published_params_source,
        "status": entry.status,
        "explanation": entry.explanation,
        "class": entry.built_as,
        "source": entry.source,
        "source_kind": entry.source_kind,
        "aliases": list(entry.aliases),
        "notes": list(entry.notes),
    }


def _table(entries: list[CatalogEntry]) -> str:
    header = ("model", "family", "kind", "parameters", "config from", "published count")
    rows = [header, *(_cells(entry) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column == 3 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cells(entry: CatalogEntry) -> tuple[str, ...]:
    parameters = "?" if entry.parameters is None else format_count(entry.parameters)
    counted = _COUNTED.get(entry.status, "unknown") if entry.native else "needs --trust-remote-code"
    return entry.id, entry.family, entry.kind, parameters, entry.source_kind, counted
