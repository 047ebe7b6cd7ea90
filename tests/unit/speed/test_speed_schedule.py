"""The schedule of a phase: by hand, folded against unfolded, and what can never happen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.speed.streams.overlap import Beside, Transfer, exposed_seconds
from gpu_plan.planner.speed.streams.schedule import Slice, Stream, Task, phase_seconds, phase_spans


def gather(seconds: float) -> tuple[Task, ...]:
    return (Task("collectives", seconds, "all_gather"),)


def test_the_first_gather_is_waited_for_and_the_others_come_one_slice_ahead() -> None:
    slices = [Slice(1.0, gather(0.5))] * 4
    assert phase_seconds(slices) == pytest.approx(0.5 + 4 * 1.0)
    starts = [span.start for span in phase_spans(slices, "forward") if span.stream == "collectives"]
    assert starts == pytest.approx([0.0, 0.5, 1.5, 2.5])


def test_slow_gathers_decide() -> None:
    assert phase_seconds([Slice(1.0, gather(3.0))] * 4) == pytest.approx(4 * 3.0 + 1.0)


def test_what_a_unit_sends_goes_through_its_streams_one_after_the_other() -> None:
    sends = (Task("collectives", 0.5, "reduce_scatter"), Task("between nodes", 2.0, "all_reduce"))
    assert phase_seconds([Slice(1.0, after=sends)] * 3) == pytest.approx(1.0 + 0.5 + 3 * 2.0)


def test_one_communicator_does_one_thing_at_a_time() -> None:
    both = Slice(1.0, gather(0.6), (Task("collectives", 0.6, "reduce_scatter"),))
    assert phase_seconds([both] * 50) > 50 * 1.19


_STREAMS: tuple[Stream, ...] = ("collectives", "between nodes", "to device", "to host")
_tasks = st.lists(st.builds(Task, st.sampled_from(_STREAMS), st.floats(0.001, 5.0), st.just("x")), max_size=3).map(
    tuple
)
_slices = st.builds(Slice, st.floats(0.0, 5.0), _tasks, _tasks)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(_slices, st.integers(1, 30)), min_size=1, max_size=4))
def test_a_row_of_equal_slices_is_folded_exactly(runs: list[tuple[Slice, int]]) -> None:
    slices = [one for one, count in runs for _ in range(count)]
    spans = list(phase_spans(slices, "x"))
    whole = max(span.start + span.seconds for span in spans)
    assert phase_seconds(slices) == pytest.approx(whole, rel=1e-6)
    assert whole >= sum(one.seconds for one in slices) * (1 - 1e-9)
    by_stream: dict[str, float] = {}
    for span in spans:
        assert span.start >= by_stream.get(span.stream, 0.0) - 1e-9
        by_stream[span.stream] = span.start + span.seconds


# -- transfers beside a phase ---------------------------------------------------------------------------------------


def gathers(seconds: float, num_bytes: int, count: int = 1) -> Transfer:
    """So many calls of forward, and the seconds of all of them."""
    sent = Collective(
        kind="all_gather", bytes=num_bytes, count=count, phase="forward", per="micro_step", overlap=True, ranks=8
    )
    return Transfer(collective=sent, seconds=(seconds,) * 3)


FREE = Beside(bound=1, memory_rate=float("inf"), compute_share=0.0)
"""Nothing is taken from the computation."""


def test_the_embeddings_gather_is_the_one_that_forward_waits_for() -> None:
    """Four times as large as a layer's: 4 seconds before 40 of its own, then a second each beside the last one's."""
    layers, embedding = gathers(3.0, 10, count=3), gathers(4.0, 40)
    for given_order in ([layers, embedding], [embedding, layers]):
        assert exposed_seconds(given_order, "forward", ("micro_step",), 70.0, FREE) == pytest.approx(4.0)


def test_transfers_never_cost_more_than_they_would_one_by_one() -> None:
    """Ten of a tenth of a second, of which nine run beside the computation: they take 0.9 seconds of it by what they
    occupy, and as much by what they pack; with the first that is above the second that all of them last."""
    slow = Beside(bound=1, memory_rate=1.0, compute_share=1.0)
    assert exposed_seconds([gathers(1.0, 10, count=10)], "forward", ("micro_step",), 10.0, slow) == pytest.approx(1.0)
    light = Beside(bound=1, memory_rate=float("inf"), compute_share=0.5)
    found = exposed_seconds([gathers(1.0, 10, count=10)], "forward", ("micro_step",), 10.0, light)
    assert found == pytest.approx(0.1 + 0.5 * 0.9)
