"""Shapes of traced tensors are told for the micro batch that is asked about."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.trace.events import shape_at, shape_text


@given(
    lines=st.lists(st.tuples(st.integers(0, 5000), st.integers(-3, 50)), max_size=5),
    low=st.integers(1, 16),
    span=st.integers(1, 64),
    asked=st.integers(1, 256),
)
def test_a_shape_on_a_line_is_read_off_at_any_micro_batch(
    lines: list[tuple[int, int]], low: int, span: int, asked: int
) -> None:
    def shape(micro_batch: int) -> tuple[int, ...]:
        return tuple(slope * micro_batch + fixed for slope, fixed in lines)

    text = shape_text(shape(low), shape(low + span), low, span)
    assert shape_at(text, asked) == f"[{', '.join(map(str, shape(asked)))}]"


def test_sizes_that_do_not_grow_are_written_plainly() -> None:
    assert shape_text((2, 8), (16, 8), 2, 14) == "[<1*B+0>, 8]"
    assert shape_text((4096, 8), (4096, 8), 2, 14) == "[4096, 8]"
    assert shape_text((3, 8), (3, 8), 3, 0) == "[3, 8]"


def test_another_rank_at_another_size_is_told_as_it_was_last() -> None:
    assert shape_text((8,), (16, 8), 2, 14) == "[16, 8]"
