"""Memory histories in torch's snapshot format, predicted and recorded.

    read   `read_history`: such a file as plain values, unpickled with nothing but plain types
    diff   `compare`: where two histories part. Pure

Used by `plan diff --snapshot` and its report. What writes predicted ones is `planner.memory.snapshot`. No torch.
"""
