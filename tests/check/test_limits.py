"""Budgets and thresholds as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.regression.limits import Budget, grown, parse_budget, parse_threshold

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fits", Budget(text="fits", fits=True)),
        ("fits 8xA100-40GB", Budget(text="fits 8xA100-40GB", fits=True, gpus="8xA100-40GB")),
        ("peak <= 36 GiB", Budget(text="peak <= 36 GiB", figure="peak_allocated_bytes", bytes=36 * GIB)),
        ("reserved<40GB", Budget(text="reserved<40GB", figure="peak_reserved_bytes", bytes=40 * 10**9)),
        ("used <= 39.5GiB", Budget(text="used <= 39.5GiB", figure="device_used_bytes", bytes=round(39.5 * GIB))),
        ("host <= 512GiB", Budget(text="host <= 512GiB", figure="host.most_bytes", bytes=512 * GIB)),
    ],
)
def test_budgets(text, expected):
    assert parse_budget(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not understood"),
        ("small", "is not understood"),
        ("peek <= 3GiB", "Did you mean peak?"),
        ("peak <= many", "size 'many' is not understood"),
        ("peak >= 3GiB", "is not understood"),
        ("fits 8xA100 4xH100", "is not understood"),
    ],
)
def test_what_is_no_budget_is_one_line(text, said):
    with pytest.raises(InputError, match=said):
        parse_budget(text)


@pytest.mark.parametrize(
    ("text", "before", "after", "passed"),
    [
        ("5%", 100, 105, False),
        ("5%", 100, 106, True),
        ("512MiB", 0, 512 * 2**20, False),
        ("512MiB", 0, 512 * 2**20 + 1, True),
        ("5%, 1GiB", 100 * GIB, 102 * GIB, True),
        ("5%,1GiB", 100 * GIB, 101 * GIB, False),
        ("0", 100, 101, True),
        ("0%", 100, 100, False),
        ("0%", 100, 50, False),
    ],
)
def test_thresholds(text, before, after, passed):
    assert parse_threshold(text).passed_by(before, after) is passed


@pytest.mark.parametrize("text", ["", "a lot", "5%, 6%", "1GiB, 2GiB", "5%;1GiB", "%", "-5%", "5%,"])
def test_what_is_no_threshold_is_one_line(text):
    with pytest.raises(InputError, match="is not understood"):
        parse_threshold(text)


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 2**50))
def test_more_growth_is_never_less_grave(before, first, second):
    threshold = parse_threshold("3%, 1GiB")
    low, high = sorted((first, second))
    assert threshold.passed_by(before, before + low) <= threshold.passed_by(before, before + high)


def test_growth_in_words():
    assert grown(33 * GIB, 37 * GIB) == "33.0 GiB -> 37.0 GiB (+4.0 GiB, +12.1%)"
    assert grown(0, GIB) == "0 B -> 1.0 GiB (+1.0 GiB)"
