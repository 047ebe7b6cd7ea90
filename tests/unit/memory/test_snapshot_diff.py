"""Two memory histories laid over each other, and the reader that takes no pickle at its word."""

import copy
import io
import json
import pickle
from pathlib import Path

import pytest

from gpu_plan import cli
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.snapshot import snapshot
from gpu_plan.planner.snapshot.diff import SnapshotDiff, compare
from gpu_plan.planner.snapshot.read import History, read_history
from gpu_plan.planner.strategy.kinds.single import Single
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SHAPES = [(100 + 7 * i, 40 + i) for i in range(12)]
MIB = 2**20


def predicted() -> dict:
    stream = Single().rank(small_context(tiny_trace(SHAPES, element_bytes=4), world_size=1)).stream
    return copy.deepcopy(dict(snapshot(stream, 3, simulate(stream, 3))))


def recorded() -> dict:
    """The same history as torch writes it: Python frames, no categories."""
    made = predicted()
    for row in made["device_traces"][0]:
        row.pop("category", None)
        row["frames"] = [
            {"filename": "/venv/torch/nn/modules/linear.py", "line": 125, "name": "forward"},
            {"filename": "/home/me/job/train.py", "line": 7, "name": "step"},
        ]
    return made


def history(snapshot: dict, name: str = "x.pickle") -> History:
    return read_history(pickle.dumps(snapshot, protocol=4), name)


def allocations(snapshot: dict) -> list[dict]:
    return [row for row in snapshot["device_traces"][0] if row["action"] == "alloc"]


def diff(changed: dict) -> SnapshotDiff:
    return compare(history(predicted()), history(changed))


def test_the_same_history_agrees_whatever_its_frames_say() -> None:
    found = diff(recorded())
    assert found.same
    assert found.agreeing == len(allocations(predicted())) == found.recorded.allocations
    assert found.predicted.peak_requested_bytes == found.recorded.peak_requested_bytes
    assert found.predicted.peak_reserved_bytes == found.recorded.peak_reserved_bytes
    assert all(row.predicted == row.recorded for row in found.sums)
    assert {row.category for row in found.sums} >= {"parameters", "gradients", "optimizer_state", "activations"}


def test_peaks_are_those_of_the_history() -> None:
    """Summed here event by event; the record's first events are cut off, and what they left still counts."""
    made = recorded()
    live, peak = 0, 0
    for row in made["device_traces"][0]:
        live += {"alloc": row["size"], "free_completed": -row["size"]}.get(row["action"], 0)
        peak = max(peak, live)
    assert history(made).peak_requested == peak
    made["device_traces"][0] = made["device_traces"][0][20:]
    late = history(made)
    assert late.peak_requested == peak
    assert late.peak_reserved == history(recorded()).peak_reserved


def test_one_size_that_differs_is_named_with_both_its_sides() -> None:
    made = recorded()
    odd = allocations(made)[30]
    odd["size"] += 5 * MIB
    found = diff(made)
    assert found.first is not None
    assert found.agreeing == found.predicted.allocations - 1
    (left,), (right,) = found.first.predicted, found.first.recorded
    assert left.number == right.number == 30
    assert right.nbytes - left.nbytes == 5 * MIB
    assert left.phase
    assert right.what == "forward (modules/linear.py:125) in step (job/train.py:7)"


def test_what_only_the_record_has_is_not_predicted() -> None:
    made = recorded()
    trace = made["device_traces"][0]
    at = trace.index(allocations(made)[40])
    trace.insert(at, {**trace[at], "size": 3 * MIB, "addr": 1})
    found = diff(made)
    assert found.first is not None
    assert (found.first.predicted_count, found.first.recorded_count) == (0, 1)
    assert sum(row.recorded for row in found.sums if row.category == "not predicted") == 3 * MIB


def test_a_record_of_the_middle_is_found_there() -> None:
    made = recorded()
    rows = allocations(made)
    made["device_traces"][0] = rows[25:60]
    found = diff(made)
    assert found.same
    assert found.agreeing == 35
    assert found.before_record + found.agreeing + found.after_record == len(rows)


def test_equal_differences_are_told_once_with_their_number() -> None:
    made = recorded()
    for number in (20, 40, 60):
        allocations(made)[number]["size"] = allocations(predicted())[number]["size"]
    trace = made["device_traces"][0]
    for row in [allocations(made)[number] for number in (20, 40, 60)]:
        trace.insert(trace.index(row), {**row, "size": 7 * MIB})
    found = diff(made)
    assert [(gap.times, gap.recorded_bytes) for gap in found.gaps] == [(3, 7 * MIB)]


def test_nothing_in_common_says_so() -> None:
    made = recorded()
    for number, row in enumerate(allocations(made)):
        row["size"] = 11 + 13 * number
    found = diff(made)
    assert not found.same
    assert found.agreeing == 0


class Runs:
    """A pickle that would run something when it is loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return print, ("ran",)


def persistent() -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, value: object) -> object:
            return "elsewhere" if value == 1 else None

    stream = io.BytesIO()
    Pickler(stream, protocol=4).dump({"segments": [1], "device_traces": []})
    return stream.getvalue()


WHOLE = pickle.dumps(recorded(), protocol=4)
BAD = {
    "nothing": (b"", "not a memory snapshot"),
    "text": (b"hello", "not a memory snapshot"),
    "truncated": (WHOLE[: len(WHOLE) // 2], "only a part"),
    "one that runs": (pickle.dumps(Runs()), "builtins.print"),
    "a class": (pickle.dumps({"segments": Path("x"), "device_traces": []}), "pathlib"),
    "references outside": (persistent(), "outside of itself"),
    "a list": (pickle.dumps([1]), "not a memory snapshot"),
    "other keys": (pickle.dumps({"a": 1}), "device_traces"),
    "no history": (pickle.dumps({"segments": [], "device_traces": [[]]}), "_record_memory_history"),
    "traces of another kind": (
        pickle.dumps({"segments": [], "device_traces": {"0": []}}),
        "device_traces is not a list",
    ),
    "a new action": (pickle.dumps({"segments": [], "device_traces": [[{"action": "zip", "size": 1}]]}), "'zip'"),
    "no size": (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}]]}), "[0][0]: size"),
    "a size below nothing": (
        pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "size": -1}]]}),
        "[0][0]: size",
    ),
    "an event of another kind": (pickle.dumps({"segments": [], "device_traces": [[3]]}), "not an event"),
    "no blocks": (
        pickle.dumps({"segments": [{"total_size": 1}], "device_traces": [[{"action": "alloc", "size": 1}]]}),
        "segments[0].blocks",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_snapshot_is_refused_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = BAD[name]
    with pytest.raises(InputError) as caught:
        read_history(content, "bad.pickle")
    message = str(caught.value)
    assert message.startswith("bad.pickle: ")
    assert words in message
    assert "\n" not in message
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("end", range(0, len(WHOLE), max(1, len(WHOLE) // 60)))
def test_any_part_of_a_snapshot_is_refused(end: int) -> None:
    with pytest.raises(InputError):
        read_history(WHOLE[:end], "part.pickle")


def test_the_command_shows_where_they_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = recorded()
    allocations(made)[30]["size"] += 5 * MIB
    ours, theirs = tmp_path / "predicted.pickle", tmp_path / "recorded.pickle"
    ours.write_bytes(pickle.dumps(predicted()))
    theirs.write_bytes(pickle.dumps(made))
    assert cli.main(["diff", "--snapshot", str(ours), str(theirs)]) == 0
    shown = capsys.readouterr().out
    assert "They part first here:" in shown
    assert "number 30, " in shown
    assert "step (job/train.py:7)" in shown
    assert cli.main(["diff", "--snapshot", "--json", str(ours), str(theirs)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["document"] == "snapshot-diff"
    assert told["first"]["recorded"][0]["number"] == 30
    theirs.write_bytes(WHOLE[:100])
    assert cli.main(["diff", "--snapshot", str(ours), str(theirs)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["diff", "--snapshot", str(ours), str(tmp_path / "none")]) == 3
