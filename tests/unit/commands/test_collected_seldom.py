"""A search is not walked for garbage while it runs; what one leaves behind goes before the next."""

import gc

import pytest

from gpu_plan.planner.job.run import seldom_collected


class Ring:
    """Garbage that only a collection finds."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Ring.alive += 1

    def __del__(self) -> None:
        Ring.alive -= 1


def test_the_end_walks_nothing_and_the_next_search_begins_clean() -> None:
    usual, walked = gc.get_threshold(), list[int]()
    watch = lambda phase, told: walked.append(told["generation"]) if phase == "start" else None  # noqa: E731
    gc.collect()
    with seldom_collected():
        Ring()
        kept = [[] for _ in range(20_000)]
        gc.callbacks.append(watch)
    gc.callbacks.remove(watch)
    assert (walked, Ring.alive, gc.get_threshold(), len(kept)) == ([], 1, usual, 20_000)
    with seldom_collected():
        assert Ring.alive == 0
    assert gc.get_threshold() == usual


def test_what_somebody_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    monkeypatch.setattr(gc, "unfreeze", lambda: pytest.fail("theirs"))
    with seldom_collected():
        pass
