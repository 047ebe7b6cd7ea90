"""Memory snapshots for a reader.

    file   `write_snapshot`: the predicted one as a file for PyTorch's memory viewer (I/O)
    diff   two histories side by side, text or JSON

Used by `--snapshot` and `plan diff --snapshot`; both show what `planner.memory.snapshot` and `planner.snapshot` made.
"""
