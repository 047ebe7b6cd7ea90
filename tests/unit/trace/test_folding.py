"""Which runs of equal blocks are folded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.trace.folding.units import EXECUTED_UNITS, Fold, find_folds


def found(pattern: str) -> list[tuple[int, int, int]]:
    folds = find_folds("layers", pattern)
    assert all(fold.list_name == "layers" for fold in folds)
    return [(fold.start, fold.period, fold.units) for fold in folds]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", []),
        ("AAAA", []),
        ("AAAAA", [(0, 1, 5)]),
        ("A" * 32, [(0, 1, 32)]),
        ("AB" * 13, [(0, 2, 14)]),
        ("AAAAAB" * 10 + "AA", [(0, 6, 12)]),
        ("AAA" + "B" * 58, [(3, 1, 58)]),
        ("ABABCBAB" * 3, []),
        ("ABABCBAB" * 4, [(0, 8, 5)]),
        ("ABBBBB", [(1, 1, 5)]),
        ("AAAB" * 12, [(0, 4, 13)]),
        ("AAAAAAAB" * 4, [(0, 1, 7), (8, 1, 7), (16, 1, 7), (24, 1, 7)]),
        ("AAAAAA" + "BCBCBCBCBCBC" + "D", [(0, 1, 6), (6, 2, 7)]),
        ("ABCDEFGH", []),
    ],
)
def test_runs(pattern: str, expected: list[tuple[int, int, int]]) -> None:
    assert found(pattern) == expected


def test_the_first_two_and_the_last_two_units_run() -> None:
    fold = Fold(list_name="layers", start=3, period=2, units=6)
    assert [list(fold.blocks(unit)) for unit in range(6)] == [[3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14]]
    assert list(fold.skipped_blocks()) == [7, 8, 9, 10]


def test_ends_of_one_block_stand_beside_units_of_several() -> None:
    fold = Fold(list_name="layers", start=3, period=2, units=6, ends=1)
    assert [list(fold.blocks(unit)) for unit in range(6)] == [[3], [4, 5], [6, 7], [8, 9], [10, 11], [12]]
    assert (list(fold.skipped_blocks()), fold.length) == ([6, 7, 8, 9], 10)


@pytest.mark.parametrize(("layers", "run"), [(34, 16), (62, 14)])
def test_a_pattern_of_six_runs_two_units_and_a_block_at_either_end(layers: int, run: int) -> None:
    """Gemma 3 of 4B and 27B."""
    (fold,) = find_folds("layers", ("AAAAAB" * 11)[:layers])
    assert layers - len(fold.skipped_blocks()) == run
    (whole,) = find_folds("layers", ("AAAAAB" * 11)[:layers], whole_ends=True)
    assert (whole.end_blocks, layers - len(whole.skipped_blocks())) == (6, 24 + layers % 6)


@given(st.text(alphabet="AB", max_size=60), st.booleans())
def test_folds_are_apart_in_order_and_truly_periodic(pattern: str, whole_ends: bool) -> None:
    end = 0
    for fold in find_folds("layers", pattern, whole_ends=whole_ends):
        assert fold.start >= end
        assert fold.units > EXECUTED_UNITS
        end = fold.start + fold.length
        run = pattern[fold.start : end]
        assert all(kind == other for kind, other in zip(run, run[fold.period :], strict=False))


@given(st.text(alphabet="AB", max_size=40))
def test_the_most_is_left_out(pattern: str) -> None:
    """At least as much as by taking the longest run at each place, from the first on."""
    taken = sum(len(fold.skipped_blocks()) for fold in find_folds("layers", pattern))
    greedy = position = 0
    while position < len(pattern):
        here = [fold for fold in find_folds("layers", pattern[position:]) if fold.start == 0]
        greedy += len(here[0].skipped_blocks()) if here else 0
        position += here[0].length if here else 1
    assert taken >= greedy


@given(st.integers(5, 200))
def test_executed_blocks_do_not_grow_with_depth(depth: int) -> None:
    (fold,) = find_folds("layers", "A" * depth)
    assert depth - len(fold.skipped_blocks()) == EXECUTED_UNITS
