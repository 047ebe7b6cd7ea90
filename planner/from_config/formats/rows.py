"""Words of packing and padding, which several formats have: planned are rows of the whole length."""

from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.table import Table

_FULL = ("packing", "sample_packing", "pad_to_sequence_len", "neat_packing")
"""What fills each row to its length."""
_OF_ROWS = ("packing_strategy", "eval_sample_packing", "eval_packing")
"""Of use beside it alone."""


def say_rows(reading: Reading, table: Table) -> None:
    """Notes whether the rows are as long as those that are planned."""
    full = [key for key in _FULL if str(table.raw(key)).lower() in ("true", "1")]
    for key in _OF_ROWS:
        table.raw(key)
    if full:
        reading.notes.append(f"{table.name(full[0])}: true: rows are full, as planned")
    elif any(table.stands(key) for key in _FULL):
        key = next(key for key in _FULL if table.stands(key))
        reading.notes.append(
            f"{table.name(key)}: rows are as long as the samples, planned is the longest that can come"
        )
