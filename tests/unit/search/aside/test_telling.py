"""What is said of candidates while the search goes on: begun once, by somebody who gives way, asked for by whoever has
the candidate."""

import os
import sys

import pytest

from gpu_plan.planner.search.aside import forked
from gpu_plan.planner.search.aside.telling import Telling
from tests.support.workers import ended

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked elsewhere")


class Candidate:
    """Equal to every other."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate)

    def __hash__(self) -> int:
        return 1


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "workers", lambda: 1)


def said(place: int) -> tuple[int, bool, int]:
    return place, os.getpid() != me, os.nice(0) - here


me, here = os.getpid(), os.nice(0)


def test_each_is_told_by_a_process_that_gives_way() -> None:
    ones = [Candidate() for _ in range(5)]
    with Telling() as telling:
        telling.begin(ones, said)
        ended(telling._aside)
        gives_way = min(10, 19 - here)
        assert [telling.of(one) for one in ones] == [(place, True, gives_way) for place in range(5)]


def test_nothing_is_known_of_others_even_if_they_are_equal() -> None:
    ones = [Candidate() for _ in range(5)]
    with Telling() as telling:
        assert (telling.knows(ones[0]), telling.of(ones[0])) == (False, None)
        telling.begin(ones, said)
        assert not telling.knows(Candidate())
        assert telling.of(Candidate()) is None
        telling.begin([Candidate(), Candidate()], lambda _: "another")
        ended(telling._aside)
        assert telling.of(ones[4]) == (4, True, min(10, 19 - here))


def test_a_process_that_is_forked_meanwhile_has_no_part_in_it() -> None:
    """It would take answers out of the pipe, and claim what nobody then does."""
    ones = [Candidate() for _ in range(5)]
    with Telling() as telling:
        telling.begin(ones, said)
        with forked.beside([[0], [1]], lambda _: [telling.of(one) for one in ones]) as other:
            ended(other)
            assert other.answer(1) == [None] * 5
        ended(telling._aside)
        assert [telling.of(one)[0] for one in ones] == [0, 1, 2, 3, 4]


def test_no_process_is_left() -> None:
    with Telling() as telling:
        telling.begin([Candidate(), Candidate()], said)
        (worker,) = telling._aside._workers
    with pytest.raises(ProcessLookupError):
        os.kill(worker.process, 0)
