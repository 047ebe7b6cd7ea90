"""A simulated run as a memory snapshot: history, state at the end, frames, and the file."""

import os
import pickle

import numpy as np
import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.memory.allocator.replay import AllocatorSettings, simulate
from gpu_plan.planner.memory.snapshot import snapshot
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import KIB, MIB
from gpu_plan.reports.snapshot.file import write_snapshot
from tests.support.snapshot_viewer import check, play, read, unknown_opcodes
from tests.support.tiny_trace import tiny_trace

SAMPLES = 3000
"""Micro batch: activations of 3 MB each, so that both pools are used."""


def stream_of(shapes=((512, 512), (2048, 1024), (3, 5)), accumulation=2):
    """A step with weights at load, a buffer on a side stream, and temporaries of the step."""
    builder = StreamBuilder(tiny_trace(shapes), accumulation)
    for index, shape in enumerate(shapes):
        builder.alloc(
            builder.at_load(), 4 * shape[0] * shape[1], Category.PARAMETERS, "weight", f"layers.{index}.linear"
        )
    side = builder.alloc(builder.at_load(), 5 * MIB + 3, Category.COMMUNICATION, "bucket", cuda_stream=1)
    for iteration in range(2):
        for size in (22 * MIB + 100, 40 * MIB):  # the second cannot use what the first leaves cached
            builder.transient(builder.at_step(iteration), size, Category.TEMPORARY, "foreach")
    builder.free(builder.at_step(1), side)
    return builder.build()


@pytest.mark.parametrize("settings", [AllocatorSettings(), AllocatorSettings(expandable_segments=True)])
def test_the_history_leads_to_the_state_at_the_end_and_to_the_peaks(settings):
    stream = stream_of()
    result = simulate(stream, SAMPLES, settings=settings)
    made = snapshot(stream, SAMPLES, result)
    device = check(made)
    assert device.peak_reserved == result.peak_reserved_bytes
    assert device.peak_requested == result.peak_requested_bytes
    assert sum(row["total_size"] for row in made["segments"]) == result.reserved_at_end
    assert sum(row["allocated_size"] for row in made["segments"]) == int(result.allocated[-1])
    assert {row["stream"] for row in made["segments"]} == {0, 1}
    assert {row["is_expandable"] for row in made["segments"]} == {settings.expandable_segments}
    events = made["device_traces"][0]
    allocated = np.count_nonzero(result.charged > 0)
    assert sum(event["action"] == "alloc" for event in events) == allocated


def test_cached_memory_given_back_under_pressure_is_in_the_history():
    stream = stream_of()
    free = simulate(stream, SAMPLES)
    for room in range(free.peak_reserved_bytes, 0, -MIB):
        result = simulate(stream, SAMPLES, capacity=room)
        if result.num_alloc_retries and result.oom_at is None:
            break
    else:
        pytest.fail("no capacity makes this run give memory back and live")
    made = snapshot(stream, SAMPLES, result)
    assert check(made).peak_reserved == result.peak_reserved_bytes < free.peak_reserved_bytes
    assert any(event["action"] == "segment_free" for event in made["device_traces"][0])


def test_a_run_that_dies_ends_with_its_request():
    stream = stream_of()
    result = simulate(stream, SAMPLES, capacity=20 * MIB)
    assert result.oom_at is not None
    made = snapshot(stream, SAMPLES, result)
    check(made)
    *before, last = made["device_traces"][0]
    assert last["action"] == "oom"
    assert (last["size"], last["device_free"]) == (result.oom_at.tried_bytes, result.oom_at.free_bytes)
    assert all(event["action"] != "oom" for event in before)
    assert sum(row["total_size"] for row in made["segments"]) == result.oom_at.reserved_bytes


def test_frames_tell_where_memory_comes_from():
    stream = stream_of()
    events = snapshot(stream, SAMPLES, simulate(stream, SAMPLES))["device_traces"][0]
    first = next(event for event in events if event["action"] == "alloc")
    assert [(frame["filename"], frame["name"]) for frame in first["frames"]] == [
        ("layers.0.linear", "weight"),
        ("layers.0", "linear"),
        ("layers", "0"),
        ("phase", "load"),
        ("category", "parameters"),
    ]
    assert first["category"] == "parameters"
    activations = [event for event in events if event.get("category") == "activations"]
    named = {(frame["filename"], frame["name"]) for event in activations for frame in event["frames"]}
    assert {("m1", "mm []"), ("phase", "forward, iteration 1"), ("phase", "forward, iteration 2")} <= named
    freed = [event for event in events if event["action"] == "free_completed"]
    assert any({"filename": "phase", "line": 0, "name": "backward, iteration 1"} in event["frames"] for event in freed)
    assert any("optimizer step, iteration 2" in {frame["name"] for frame in event["frames"]} for event in freed)


def test_play_notices_what_contradicts():
    events = snapshot(stream_of(), 1, simulate(stream_of(), 1))["device_traces"][0]
    without_segment = [event for event in events if event["action"] != "segment_alloc"]
    with pytest.raises(AssertionError):
        play(without_segment)


def test_the_file_holds_plain_values_in_opcodes_that_the_viewer_reads(tmp_path):
    stream = stream_of()
    made = snapshot(stream, SAMPLES, simulate(stream, SAMPLES))
    path = tmp_path / "run.pickle"
    write_snapshot(made, path)
    content = path.read_bytes()
    assert content[:2] == b"\x80\x04"
    assert unknown_opcodes(content) == set()
    assert read(content) == made
    check(read(content))
    with pytest.raises(UsageError, match="--force"):
        write_snapshot(made, path)
    write_snapshot({"segments": [], "device_traces": [[]]}, path, force=True)
    assert read(path.read_bytes())["segments"] == []
    assert os.listdir(tmp_path) == ["run.pickle"]


def test_the_careful_reader_refuses_code():
    with pytest.raises(pickle.UnpicklingError, match="plain values"):
        read(pickle.dumps(os.getcwd))
    assert unknown_opcodes(pickle.dumps(os.getcwd, 4)) >= {"STACK_GLOBAL"}


@pytest.mark.parametrize("samples", [1, KIB])
def test_sizes_of_blocks_cover_what_was_asked_for(samples):
    stream = stream_of(accumulation=1)
    made = snapshot(stream, samples, simulate(stream, samples))
    for segment in made["segments"]:
        for block in segment["blocks"]:
            assert block["size"] % 512 == 0
