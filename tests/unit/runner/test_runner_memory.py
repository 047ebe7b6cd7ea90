"""Resident memory between borders, of this very process."""

import mmap

from gpu_plan.executor.runner.memory.process import ResidentMemory

SIZE = 96 * 2**20
SLACK = 2**22
"""The kernel adds up resident pages from counters of each processor, which it settles in batches; Python allocates."""


def touched():
    """Pages that are resident and go back to the system at once when closed."""
    pages = mmap.mmap(-1, SIZE)
    for at in range(0, SIZE, mmap.PAGESIZE):
        pages[at] = 1
    return pages


def test_each_interval_has_its_own_peak():
    memory = ResidentMemory()
    memory.border()
    before, _ = memory.border()
    touched().close()
    during, _ = memory.border()
    after, _ = memory.border()
    if "refused" in memory.note():
        assert before == during == after  # what is resident at a border knows of no peak
        return
    assert abs(during - before - SIZE) < SLACK
    assert abs(after - before) < SLACK
    assert abs(memory.resident() - after) < SLACK
    # Where the launcher was larger than this process, its peak must not be taken for ours.
    memory._floor = 2**62
    touched().close()
    assert abs(memory.border()[0] - during) < SLACK
