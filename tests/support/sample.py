"""What of a set of cases `make test` runs."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sample(cases: Iterable[Any], *, kept: Collection[Any]) -> list[Any]:
    """`cases` as parameters of a test: those in `kept` run with `make test`, the others only with `make prove`.

    A case that a test takes apart into several parameters is a tuple. ValueError where a kept one is no case: a sample
    that is renamed away would leave the test without any.
    """
    listed = list(cases)
    lost = [case for case in kept if case not in listed]
    if lost or not kept:
        raise ValueError(f"kept, but no cases: {lost}")
    return [case if case in kept else _slow(case) for case in listed]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
