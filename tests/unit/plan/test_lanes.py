"""A step stream by stream: what is drawn of the trace that --timeline writes."""

from typing import Any

from gpu_plan.planner.plan.drawn.lanes import Lane, cells, lanes_of, step_seconds
from gpu_plan.reports.plots.streams import streams_panel


def event(name: str, start: float, seconds: float, thread: int = 0, process: int = 0) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start * 1e6, "dur": seconds * 1e6, "pid": process, "tid": thread}


def thread(name: str, number: int, process: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}}


STEP = {
    "traceEvents": [
        thread("compute", 0),
        thread("collectives", 1),
        event("forward", 1.0, 1.0),
        event("forward", 2.0, 2.0),
        event("backward", 4.0, 4.0),
        event("all_gather", 0.0, 1.0, 1),
        event("reduce_scatter", 7.0, 3.0, 1),
    ]
}


def test_spans_that_touch_are_one_and_lanes_bear_their_streams_names() -> None:
    compute, sent = lanes_of(STEP)
    assert compute.name == "compute"
    assert compute.spans == (("forward", 1.0, 3.0), ("backward", 4.0, 4.0))
    assert [span.name for span in sent.spans] == ["all_gather", "reduce_scatter"]
    assert compute.busy == 7.0
    assert step_seconds((compute, sent)) == 10.0


def test_ranks_of_a_pipeline_are_stages_and_their_micro_batches_one_name() -> None:
    events = [
        event(f"forward {batch}, stage {rank}", rank + batch, 1.0, 0, rank) for rank in range(12) for batch in (0, 1)
    ]
    lanes = lanes_of({"traceEvents": events})
    assert [lane.name for lane in lanes] == [f"stage {rank}" for rank in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert lanes[0].spans == (("forward", 0.0, 2.0),)


def test_a_cell_says_what_takes_most_of_it() -> None:
    compute, sent = lanes_of(STEP)
    assert cells(compute, 10.0, 5) == ("forward", "forward", "backward", "backward", "")
    assert cells(sent, 10.0, 5) == ("all_gather", "", "", "reduce_scatter", "reduce_scatter")


def test_nothing_that_runs_has_no_lanes() -> None:
    assert lanes_of({"traceEvents": [thread("compute", 0)]}) == ()
    assert step_seconds(()) == 0.0
    assert cells(Lane(name="compute", spans=()), 1.0, 3) == ("", "", "")


def test_the_picture_has_a_row_for_each_lane() -> None:
    axes = streams_panel(lanes_of(STEP), 9.6).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["compute", "collectives"]
    assert axes.get_xlim() == (0.0, 10.0)
