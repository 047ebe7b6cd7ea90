"""Which numbers are among a few."""

import numpy as np
import pytest

from gpu_plan.planner.plain.among import among


@pytest.mark.parametrize("numbers", [(), (3,), (3, 5), tuple(range(0, 40, 3))])
@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_as_numpy_says(numbers, kind):
    column = np.arange(-4, 60).astype(kind)
    found = among(column, numbers)
    assert found.dtype == np.bool_
    assert found.tolist() == np.isin(column, list(numbers)).tolist()
