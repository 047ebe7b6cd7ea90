"""The timeline of a step: what it holds, as data and as a picture."""

import csv
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from planner import cli
from planner.errors import UsageError
from planner.memory.allocator import simulate
from planner.memory.profile import measure
from planner.memory.timeline import timeline
from planner.plan_timeline import Timeline
from planner.strategy.single import Single
from reports.timeline import as_csv, as_svg, check_ending
from tests.support.rank_contexts import small_context
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


def test_data_has_every_event_and_marks_the_peak() -> None:
    found = made()
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == len(found.moments)
    (peak,) = [row for row in rows if row["is_peak"] == "1"]
    assert int(peak["allocated"]) == max(int(row["allocated"]) for row in rows)
    assert sum(int(peak[category]) for category in found.start) == int(peak["allocated"])


def test_the_picture_is_well_formed_and_says_the_peak() -> None:
    root = ET.fromstring(as_svg(made()))
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "tiny <model> & more" in words
    assert any(word.startswith("peak allocated") for word in words)
    assert {"forward", "backward", "optimizer step"} <= set(words)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polygon"))) >= 4
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 1


def test_a_run_that_dies_is_drawn_to_its_end() -> None:
    peak = simulate(STREAM, 3).peak_reserved_bytes
    found = made(capacity=peak - 2**21)
    assert found.moments
    assert len(found.moments) <= len(made().moments)
    ET.fromstring(as_svg(found))


@pytest.mark.parametrize("path", ["a.png", "a", "svg", "a.svg.txt"])
def test_other_endings_are_refused_in_one_line(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"\.svg .* or \.csv"):
        check_ending(path)
    assert cli.main(["Qwen/Qwen2-0.5B", "--gpus", "1xA100", "--plot", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
