"""A trace as bytes and back: `dump` and `load`, uncompressed `written` and `read`.

What is no trace raises `CorruptTraceError`.

archive   one trace: a JSON text and its columns
over_lengths   one over sequence lengths
over_sizes     a generation over prompts and batches
framed    what both have in common
columns   numbers as few bytes
"""

from gpu_plan.planner.trace.storage.archive import CorruptTraceError, dump, load, read, written

__all__ = ["CorruptTraceError", "dump", "load", "read", "written"]
