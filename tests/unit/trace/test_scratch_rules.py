"""What the embedding's backward pass takes, by value, and where it bends."""

import pytest

from gpu_plan.planner.trace.rules import Ruled, embedding_backward


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (3072, [0] * 7),
        (3073, [8 * 3073] * 6 + [4 * (307 + 3073) * 16]),
        (4000, [8 * 4000] * 6 + [4 * (400 + 4000) * 16]),
        (5009, [8 * 5009] * 6 + [4 * (500 + 4000) * 16]),
    ],
)
def test_an_embedding_of_4000_rows_of_16(count: int, sizes: list[int]) -> None:
    """EmbeddingBackwardKernel.cu: six buffers of indices, and partial sums of at most as many rows as there are."""
    assert [rule.nbytes(count) for rule in embedding_backward(4000, 16)] == sizes


def test_a_rule_is_asked_about_the_count_of_a_micro_batch() -> None:
    ruled = Ruled(embedding_backward(4000, 16)[0], fixed=24, per_sample=1024)
    assert [(ruled.count(batch), ruled.nbytes(batch)) for batch in (2, 3)] == [(2072, 0), (3096, 8 * 3096)]
