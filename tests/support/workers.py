"""Processes that work beside a search, waited for."""

from gpu_plan.planner.search.aside.forked import Aside


def ended(aside: Aside) -> None:
    """Waits until every worker has done all that it takes."""
    for worker in aside._workers:
        while worker.pipe >= 0:
            aside._read(worker, wait=True)
