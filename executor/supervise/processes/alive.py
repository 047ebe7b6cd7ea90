"""Whether the process that wrote a run's record still lives (I/O)."""

from gpu_plan.executor.records.run import RunRecord

_SLACK_SECONDS = 2.0
"""Start times of processes are told in clock ticks since the boot, whose own time is known to a second."""


def supervisor_alive(record: RunRecord) -> bool:
    """Whether the process that wrote `record` lives: the same number, and not begun after the record was written."""
    import psutil

    try:
        began = float(psutil.Process(record.supervisor_pid).create_time())
    except (psutil.Error, ValueError):
        return False
    return began <= record.updated + _SLACK_SECONDS
