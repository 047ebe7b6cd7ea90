"""The predicted memory snapshot as a file that PyTorch's memory viewer opens.   I/O"""

import os
import pickle
from collections.abc import Mapping

from gpu_plan.planner.plan.files import write_bytes

_PROTOCOL = 4
"""torch/utils/viz/MemoryViz.js (unpickle) reads protocols 2 to 4."""


def write_snapshot(snapshot: Mapping[str, object], path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Pickle plain values to `path`, whole or not at all. UsageError where a file is there and `force` is not given,
    UnreachableError where it cannot be written."""
    write_bytes(path, pickle.dumps(snapshot, protocol=_PROTOCOL), force=force)
