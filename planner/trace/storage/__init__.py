"""A trace as bytes and back: `dump`, `load`; what is no trace raises `CorruptTraceError`.

archive   one trace: a JSON text and its columns, compressed
over_lengths   one over sequence lengths
columns   numbers as few bytes
"""

from gpu_plan.planner.trace.storage.archive import CorruptTraceError, dump, load

__all__ = ["CorruptTraceError", "dump", "load"]
