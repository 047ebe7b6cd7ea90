"""Reads a truth file, and tells what its rows are about."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.accuracy.row import Row, field, number, text
from gpu_plan.planner.errors import InputError

MOST_BYTES = 2**28
_FIELDS = frozenset(
    {
        "activation_checkpointing",
        "arch",
        "attention",
        "compile",
        "confidence",
        "dtype",
        "fused_or_chunked_loss",
        "global_batch",
        "gpu",
        "grad_accum",
        "group",
        "id",
        "lora",
        "measured",
        "micro_batch_per_gpu",
        "model",
        "notes",
        "optimizer",
        "parallel",
        "primary_memory_metric",
        "printed",
        "quantization",
        "seq_len",
        "seq_len_kind",
        "software",
        "source",
        "statistic_defined",
        "strategy",
        "task",
        "unit_as_printed",
        "config",
        "kernel",
        "liger_version",
        "mode",
        "provider",
        "x_label",
        "x_name",
        "x_value",
    }
)
"""Fields of training, inference and speed rows, and of single kernels."""
_RECOGNISED = 3
"""An object with fewer of them is no row."""
MEMORY_FIGURES = ("peak_allocated_gib", "peak_reserved_gib", "peak_active_gib", "nvidia_smi_gib", "unspecified_gib")
SPEED_FIGURES = ("tokens_per_s_per_gpu", "step_time_s")
_LISTS = ("rows", "died")
_MOSTLY, _OFTEN = 0.9, 0.1


class Kind(StrEnum):
    """What a row measures."""

    MEMORY = "memory"
    INFERENCE = "inference"
    SPEED = "speed"
    KERNELS = "kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Rows of one file."""

    path: Path
    rows: tuple[Row, ...]
    kinds: tuple[Kind, ...]
    """Of each row."""
    unknown: tuple[tuple[str, int], ...]
    """Fields that no rule reads, with the number of rows that have them."""
    strays: tuple[str, ...] = ()
    """What stands among the rows and is none."""


def read_truth(path: Path, kind: Kind | None = None) -> Truth:
    """A JSON list of rows, or an object whose `rows` and `died` are. InputError in one line when it is neither.

    `kind`: what the rows are about; None to tell by the rows themselves.
    """
    loaded = _rows(path, _loaded(path))
    rows = tuple(row for row in loaded if isinstance(row, dict))
    strays = tuple(f"entry {place}" for place, row in enumerate(loaded, 1) if not isinstance(row, dict))
    unknown = Counter(name for row in rows for name in row if name not in _FIELDS)
    kinds = tuple([kind] * len(rows) if kind else _kinds(rows))
    return Truth(path=path, rows=rows, kinds=kinds, unknown=tuple(sorted(unknown.items())), strays=strays)


def _loaded(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: larger than {MOST_BYTES >> 20} MiB: no file of published measurements")
        return json.loads(path.read_text(encoding="utf-8"))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as problem:
        told = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InputError(f"{path}: cannot be read as published measurements: {told}") from None


def _rows(path: Path, loaded: Any) -> tuple[Any, ...]:
    """What the file lists, rows among it."""
    if isinstance(loaded, dict):
        lists = [loaded[name] for name in _LISTS if isinstance(loaded.get(name), list)]
        loaded = [row for rows in lists for row in rows] if lists else None
    if not isinstance(loaded, list) or (loaded and not any(isinstance(row, dict) for row in loaded)):
        raise InputError(f"{path}: no list of measured rows: give a JSON list of objects, or an object with `rows`")
    if not any(len(_FIELDS & set(row)) >= _RECOGNISED and "measured" in row for row in loaded if isinstance(row, dict)):
        raise InputError(f"{path}: no row has a `measured` beside the fields of a run: this is no truth file")
    return tuple(loaded)


def _kinds(rows: Sequence[Row]) -> list[Kind]:
    """A file most of whose training runs have a speed, and many of them nothing else, is about speed."""
    first = [_own_kind(row) for row in rows]
    runs = [row for row, kind in zip(rows, first, strict=True) if kind is Kind.MEMORY]
    timed = [row for row in runs if _has_speed(row)]
    alone = [row for row in timed if not _has_memory(row)]
    fast = len(timed) > _MOSTLY * len(runs) and len(alone) > _OFTEN * len(runs)
    return [Kind.SPEED if fast and kind is Kind.MEMORY else kind for kind in first]


def _own_kind(row: Row) -> Kind:
    if "kernel" in row:
        return Kind.KERNELS
    return Kind.INFERENCE if "inference" in text(row, "task") else Kind.MEMORY


def _has_memory(row: Row) -> bool:
    return isinstance(field(row, "measured.fits"), bool) or any(
        number(row, f"measured.{name}") is not None for name in MEMORY_FIGURES
    )


def _has_speed(row: Row) -> bool:
    names = (*SPEED_FIGURES, "mfu", "tflops_per_gpu", "samples_per_s")
    return any(number(row, f"measured.{name}") is not None for name in names)
