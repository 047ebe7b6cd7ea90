"""Global memory of torch's sums over rows, by hand after Reduce.cuh: a bias's gradient of 2048 rows of bfloat16."""

from dataclasses import replace

import pytest

from gpu_plan.planner.trace.kernels.row_sums import RowPartials, RowSemaphores, Sums

H100 = Sums(columns=15_360, sm_count=132, threads_per_sm=2048)
"""BERT's 30,720 words on one of two ranks."""


def test_blocks_fill_the_device():
    """32 × 4 threads of four outputs: 120 blocks side by side of 2,112 (1,728 on A100) that run at once."""
    assert H100.partials(2048) == (18, 32, 120)
    assert replace(H100, sm_count=108).partials(2048) == (15, 32, 120)
    assert RowPartials(H100).nbytes(2048) == 4 * 15_360 * 18 * 32 * 4
    assert RowSemaphores(H100).nbytes(2048) == 4 * 120


def test_what_a100_measured_less_than_h100():
    """Megatron-LM's BERT at one commit: 3,079,487,488 and 3,055,894,528 bytes, with the same between steps."""
    fewer = replace(H100, sm_count=108)
    assert RowPartials(H100).nbytes(2048) - RowPartials(fewer).nbytes(2048) == 3_079_487_488 - 3_055_894_528


@pytest.mark.parametrize(
    ("columns", "rows", "shared"),
    [
        (1024, 2048, 32),  # 512 values a thread, 16 of them at least
        (1024, 1020, 1),  # 255 values in each of 4 rows of threads
        (4_000_000, 4096, 1),  # more blocks side by side than run at once
        (1023, 2048, 1),  # one output a thread: 16 rows of threads, 128 values each
    ],
)
def test_few_rows_or_many_columns_are_summed_by_one_block(columns, rows, shared):
    found = replace(H100, columns=columns).partials(rows)[0]
    assert found == shared
    assert bool(RowPartials(replace(H100, columns=columns)).nbytes(rows)) == (found > 1)
