"""Amounts as they are read: never with an exponent, and in units that mean something."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.units import format_dollars, format_hours, format_short
from gpu_plan.reports.durations import seconds


@given(st.floats(1e-9, 1e15))
def test_no_amount_has_an_exponent(value: float) -> None:
    for text in (format_short(value), format_dollars(value), format_hours(value)):
        number = text.split()[0].removeprefix("$").replace(",", "")
        assert "e" not in number
        assert float(number) == pytest.approx(value * (60 if "minutes" in text else 1), rel=0.06)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (35_000.0, "$35,000"),
        (17.52, "$17.52"),
        (0.42, "$0.42"),
        (0.0042, "$0.0042"),
        (1.2e-5, "$0.000012"),
        (0, "$0.00"),
    ],
)
def test_dollars(value: float, text: str) -> None:
    assert format_dollars(value) == text


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.07, "4.2 minutes"),
        (3.9, "3.9 hours"),
        (178.2, "178 hours (7.4 days)"),
        (69_918.1, "69,918 hours (8.0 years)"),
    ],
)
def test_hours(hours: float, text: str) -> None:
    assert format_hours(hours) == text


def test_a_long_duration_is_in_hours() -> None:
    assert (seconds(36_798.0), seconds(744.0)) == ("10.2 h", "12.4 min")
