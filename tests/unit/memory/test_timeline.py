"""The timeline of a step: what it holds, as data and as a picture."""

import csv
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from gpu_plan import cli
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.memory.timeline import iteration_at, timeline
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.units import GIB, MIB
from gpu_plan.reports.plots.timeline import as_picture, draw
from gpu_plan.reports.plots.timeline_file import as_csv, check_ending, write_timeline
from tests.support.rank_contexts import small_context
from tests.support.sample import sample
from tests.support.tiny_trace import tiny_trace

STREAM = Single().rank(small_context(tiny_trace([(2000, 400), (1000, 400)], element_bytes=4), world_size=1)).stream


def made(capacity: int | None = None) -> Timeline:
    result = simulate(STREAM, 3, capacity=capacity)
    return timeline(STREAM, 3, result, title="tiny <model> & more", capacity=capacity or 2**34)


def test_the_peak_is_the_runs_own_and_its_parts_add_up() -> None:
    found = made()
    result = simulate(STREAM, 3)
    assert found.moments[found.peak].allocated == result.peak_allocated_bytes
    assert max(moment.reserved for moment in found.moments) == result.peak_reserved_bytes
    levels = dict(found.start)
    for number, moment in enumerate(found.moments):
        levels[moment.category] += moment.change
        assert sum(levels.values()) == moment.allocated <= moment.reserved
        if number == found.peak:
            at_peak = measure(STREAM, 3, result.block_bytes(len(STREAM.fixed))).at_peak
            assert levels == {str(category): size for category, size in at_peak.items()}
    assert next(m.phase for m in found.moments if m.category == "gradients") == "backward"
    assert {m.phase for m in found.moments} == {"forward", "backward", "optimizer step"}


def test_an_iteration_ends_with_its_step() -> None:
    """The first event behind the first optimizer step is the second iteration's."""
    count = len(STREAM.event_segment)
    second = int(np.flatnonzero(STREAM.event_segment > STREAM.step_segments[0])[0])
    first = int(np.flatnonzero(STREAM.event_segment > 0)[0])
    assert iteration_at(STREAM, second - 1, count) == (1, first, second)
    assert iteration_at(STREAM, second, count) == (2, second, count)


def test_data_has_every_event_and_marks_the_peak() -> None:
    found = made()
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == len(found.moments)
    (peak,) = [row for row in rows if row["is_peak"] == "1"]
    assert int(peak["allocated"]) == max(int(row["allocated"]) for row in rows)
    assert sum(int(peak[category]) for category in found.start) == int(peak["allocated"])


def test_the_picture_stacks_the_categories_marks_the_peak_and_names_the_phases() -> None:
    found = made()
    step, peak = draw(found).axes
    moment = found.moments[found.peak]
    (stack,) = {len(step.collections)}
    assert stack == len(
        [name for name in found.start if any(level[list(found.start).index(name)] for level in found.levels())]
    )
    (mark,) = [line for line in step.lines if line.get_label() == "peak"]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (found.peak, moment.allocated / MIB)
    assert [text.get_text() for text in step.texts] == ["forward", "backward", "optimizer step"]
    assert sum(bar.get_width() for bar in peak.patches) == pytest.approx(moment.allocated / GIB)
    assert "capacity" not in {line.get_label() for line in step.lines}, "16 GiB above a tiny run would flatten it"
    near = draw(made(capacity=2 * max(m.reserved for m in found.moments))).axes[0]
    assert "capacity" in {line.get_label() for line in near.lines}


@pytest.mark.parametrize("form", sample(["png", "svg", "pdf"], kept=["png"]))
def test_pictures_are_whole_files_and_the_same_each_time(form: str, tmp_path: Path) -> None:
    found = made()
    write_timeline(found, tmp_path / f"a.{form.upper()}")
    content = (tmp_path / f"a.{form.upper()}").read_bytes()
    assert content == as_picture(found, form)
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form])
    if form == "svg":
        words = [element.text for element in ET.fromstring(content).iter("{http://www.w3.org/2000/svg}text")]
        assert "tiny <model> & more" in words
        assert "optimizer step" in words


def test_a_run_that_dies_is_drawn_to_its_end() -> None:
    peak = simulate(STREAM, 3).peak_reserved_bytes
    found = made(capacity=peak - 2**21)
    assert found.dies
    assert found.moments
    assert len(found.moments) <= len(made().moments)
    assert "runs out of memory" in [text.get_text() for text in draw(found).axes[0].texts]
    assert "runs out of memory" not in [text.get_text() for text in draw(made()).axes[0].texts]


def test_without_matplotlib_a_picture_is_refused_before_the_work_and_data_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"gpu-plan\[plots\]"):
        check_ending("a.png")
    check_ending("a.csv")


@pytest.mark.parametrize("path", ["a.jpg", "a", "svg", "a.svg.txt"])
def test_other_endings_are_refused_in_one_line(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"\.png, \.svg .* or \.csv"):
        check_ending(path)
    assert cli.main(["Qwen/Qwen2-0.5B", "--gpus", "1xA100", "--plot", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
