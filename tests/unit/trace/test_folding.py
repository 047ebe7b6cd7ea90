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
        ("AB" * 13, [(0, 2, 13)]),
        ("AAAAAB" * 10 + "AA", [(0, 6, 10)]),
        ("AAA" + "B" * 58, [(3, 1, 58)]),
        ("ABABCBAB" * 4, []),
        ("ABABCBAB" * 5, [(0, 8, 5)]),
        ("ABBBBB", [(1, 1, 5)]),
        ("AAAB" * 12, [(0, 4, 12)]),
        ("AAAAAAAB" * 4, [(0, 1, 7), (8, 1, 7), (16, 1, 7), (24, 1, 7)]),
        ("AAAAAA" + "BCBCBCBCBCBC" + "D", [(0, 1, 6), (6, 2, 6)]),
        ("ABCDEFGH", []),
    ],
)
def test_runs(pattern: str, expected: list[tuple[int, int, int]]) -> None:
    assert found(pattern) == expected


def test_the_first_two_and_the_last_two_units_run() -> None:
    fold = Fold(list_name="layers", start=3, period=2, units=6)
    assert [list(fold.blocks(unit)) for unit in range(6)] == [[3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14]]
    assert list(fold.skipped_blocks()) == [7, 8, 9, 10]


@given(st.text(alphabet="AB", max_size=60))
def test_folds_are_apart_in_order_and_truly_periodic(pattern: str) -> None:
    end = 0
    for start, period, units in found(pattern):
        assert start >= end
        assert units > EXECUTED_UNITS
        end = start + period * units
        assert pattern[start:end] == pattern[start : start + period] * units


@given(st.integers(5, 200))
def test_executed_blocks_do_not_grow_with_depth(depth: int) -> None:
    (fold,) = find_folds("layers", "A" * depth)
    assert depth - len(fold.skipped_blocks()) == EXECUTED_UNITS
