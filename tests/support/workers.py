"""Processes that work beside a search, waited for."""

from time import sleep

from gpu_plan.planner.search.aside.forked import Aside


def ended(aside: Aside) -> None:
    """Waits until every worker has done all that it takes."""
    for worker in aside._workers:
        while worker.pipe >= 0:
            aside._read(worker, wait=True)


def taken(aside: Aside, group: int) -> None:
    """Waits until a worker has begun with a group."""
    while aside._claims is not None and not aside._claims[group]:
        sleep(0.001)
