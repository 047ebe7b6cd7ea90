"""Single kernels against published GPU peaks: what is committed is what the code says, and it is exact."""

import pytest

from benchmarks.accuracy.kernels.estimate import KernelLines
from tests.accuracy.committed import LINES, ROWS, lines_of

SAMPLE = ("0006", "0012", "0016", "0020", "0024", "0036", "0044", "0048", "0056", "0067", "0072", "0076", "0080")


@pytest.mark.parametrize("number", SAMPLE)
def test_the_committed_figures_are_those_of_the_code(number: str) -> None:
    name = f"cm-liger-kernel-{number}"
    found = KernelLines().line(ROWS[name])
    assert found == {key: LINES[name][key] for key in found}


def test_kernels_meet_the_gpu_s_own_counter() -> None:
    """The source prints MiB with five digits or so; one row of Liger's fused loss is 1 MiB off in 4.8 GiB."""
    lines = lines_of("kernels")
    errors = sorted(abs(line["peak_allocated_error"]) for line in lines)
    assert len(errors) == 80
    assert errors[-1] < 4e-4
    assert errors[len(errors) // 2] < 1e-5
    assert max(abs(line["peak_allocated"] - line["measured_peak_allocated"]) for line in lines) < 1.1 * 2**20
