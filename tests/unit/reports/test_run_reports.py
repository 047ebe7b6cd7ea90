"""`plan runs` and `plan report`: run folders as they are left behind, whole or not."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.records.rank import Actual, RankError, StepSummary
from gpu_plan.executor.records.run import Attempt
from gpu_plan.executor.supervise.processes.alive import supervisor_alive
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.reports.run.compare import compare_run
from tests.support.plan_example import llama_on_8xh100, memory
from tests.support.run_example import BASE, MIB, STARTED, cuda_record, rank_record, run_record, write_folder

PEAK = 40 * MIB


def plan(strategy="ddp", **figures):
    """A saved plan with known figures."""
    document = llama_on_8xh100()
    best = document.best
    small = {"parameters": 25 * MIB, "activations": 15 * MIB, "capacity": 800 * MIB, **figures}
    told = replace(memory(**small), phase_peaks={"load": 25 * MIB, "forward": 30 * MIB, "backward": PEAK})
    choice = replace(best.strategy, name=strategy, data_parallel=2, micro_batch_size=4)
    return saved_plan(document, replace(best, strategy=choice, memory=told))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(capsys):
    def run(*words):
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


# -- comparing -------------------------------------------------------------------------------------------------


def test_gpu_ranks_are_compared_with_the_plan(here):
    ranks = (cuda_record(0, PEAK - 4 * MIB), cuda_record(1, PEAK + 4 * MIB))
    found = compare_run(read_whole(write_folder(here, run_record(), plan(), *ranks)))
    allocated, reserved, used = found.memory
    assert not found.cpu
    assert allocated.measured == PEAK + 4 * MIB  # the worst rank
    assert allocated.ratio == pytest.approx(1.1)
    assert reserved.measured == PEAK + 5 * MIB
    assert used.inside is (used.low <= PEAK + 604 * MIB <= used.high)
    assert {phase.name: phase.measured for phase in found.phases} == {
        "forward": PEAK + 3 * MIB,
        "backward": PEAK + 4 * MIB,
        "optimizer step": PEAK + 2 * MIB,
    }
    assert {phase.name: phase.predicted for phase in found.phases}["forward"] == 30 * MIB


def test_an_interval_that_was_left_is_said(here, said):
    write_folder(here, run_record(), plan(), cuda_record(0, 100 * PEAK), cuda_record(1, PEAK))
    _, out, _ = said("report", "one")
    assert ", OUTSIDE" in out


def test_resident_memory_is_not_held_against_the_prediction(here, said):
    folder = write_folder(here, run_record(), plan(), rank_record(0), rank_record(1))
    found = compare_run(read_whole(folder))
    (only,) = found.memory
    assert found.cpu
    assert only.measured == 101 * MIB  # the peak less what stood before the script
    assert only.predicted == PEAK
    assert only.ratio is None
    assert all(phase.ratio is None for phase in found.phases)
    assert {phase.name: phase.measured for phase in found.phases}["optimizer step"] == 90 * MIB
    code, out, _ = said("report", "latest")
    assert code == 0
    assert "not comparable" in out
    assert "MALLOC_ARENA_MAX" in out


def test_a_rank_without_its_base_is_no_zero(here):
    record = rank_record(0, base_resident_bytes=None)
    found = compare_run(read_whole(write_folder(here, run_record(world_size=1), plan(), record)))
    assert found.memory[0].measured is None
    assert found.ranks[0].peak_bytes is None


@pytest.mark.parametrize(("strategy", "shards"), [("ddp", 1), ("single", 1), ("fsdp", 2), ("fsdp1", 2)])
def test_weights_are_known_from_their_dtypes(here, strategy, shards):
    found = compare_run(read_whole(write_folder(here, run_record(), plan(strategy), rank_record(0), rank_record(1))))
    weights, activations = found.categories
    assert weights.measured == 25 * MIB // shards
    assert weights.ratio == 1 / shards
    assert activations.measured is None
    assert activations.ratio is None


def test_weights_under_zero_are_not_known(here):
    """Their flat buffers, masters and gathered copies are not what the model's dtypes tell."""
    found = compare_run(read_whole(write_folder(here, run_record(), plan("zero2"), rank_record(0), rank_record(1))))
    assert found.categories[0].measured is None


def test_an_unknown_element_type_is_no_error(here):
    odd = rank_record(0, actual=Actual(parameter_dtypes={"float2": 3}))
    assert compare_run(read_whole(write_folder(here, run_record(), plan(), odd))).categories[0].measured is None


def test_speed_leaves_out_the_first_step(here):
    found = compare_run(read_whole(write_folder(here, run_record(), plan(), rank_record(0), rank_record(1))))
    speed = {figure.name: figure for figure in found.speed}
    assert speed["step"].measured == 0.5
    assert speed["samples/s"].measured == 2 * 4 / 0.5
    assert speed["tokens/s per rank"].measured == 512 / 0.5


# -- text, Markdown, JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_every_format_tells_the_same(here, said, form):
    attempts = (
        Attempt(
            number=1,
            command=("accelerate",),
            started=STARTED,
            ended=STARTED + 5,
            exit_code=1,
            cause="oom",
            culprit=1,
            explanation="rank 1 asked for 3 GiB and got none",
            last_step=2,
            strategy={"name": "ddp", "micro_batch_size": 8, "gradient_accumulation_steps": 1},
        ),
        replace(
            run_record().attempts[0],
            number=2,
            resumed_from="checkpoints/step-2",
            first_step=3,
            changes=("micro batch 8 to 4, accumulation 1 to 2",),
            deviations=("mixed precision: planned bf16, ran fp32",),
        ),
    )
    broken = RankError(type="torch.OutOfMemoryError", message="no room", file="train.py", line=7)
    ranks = (rank_record(0, attempt=2, notes=("loss was not seen",)), rank_record(1, attempt=2, error=broken))
    write_folder(here, run_record(attempts=attempts), plan(), *ranks)
    code, out, err = said("report", "one", "--format", form)
    assert (code, err) == (0, "")
    for words in ("rank 1 asked for 3 GiB", "micro batch 8 to 4", "planned bf16", "loss was not seen", "OutOfMemory"):
        assert words in out.replace("\\", "")
    if form == "json":
        document = json.loads(out)
        assert document["run"]["attempts"][0]["cause"] == "oom"
        assert document["memory"][0] == {
            "name": "resident above base",
            "predicted": PEAK,
            "low": None,
            "high": None,
            "measured": 101 * MIB,
            "comparable": False,
            "ratio": None,
            "inside": None,
        }
        assert [rank["summary"]["last_loss"] for rank in document["ranks"]] == [4 / 3, 4 / 3]


def test_what_a_script_says_cannot_draw_on_the_terminal(here, said):
    hostile = RankError(type="E", message="\x1b[31mred\x07 | <b>bold</b>\nnext")
    write_folder(here, run_record(), plan(), rank_record(0, error=hostile), rank_record(1))
    for form in ("text", "md"):
        out = said("report", "one", "--format", form)[1]
        assert "\x1b" not in out
        assert "\x07" not in out
    assert "\\|" in out
    assert "\\<b\\>" in out
    assert said("report", "one", "--ascii")[1].isascii()


# -- damaged and running ones ------------------------------------------------------------------------------------------


def test_a_run_without_plan_or_ranks_is_still_told(here, said):
    write_folder(here, run_record(), None)
    code, out, _ = said("report", "one")
    assert code == 0
    assert "SUCCEEDED" in out
    assert "2 of 2 ranks have no readable record" in out
    assert "there is no plan" in out


@pytest.mark.parametrize("damage", ["", "{", '{"schema_version": 1}', "\x00\xff", "[]"])
def test_a_torn_rank_record_is_passed_over(here, damage):
    folder = write_folder(here, run_record(), plan(), rank_record(0), rank_record(1))
    (folder.path / "rank-1.json").write_text(damage)
    whole = read_whole(folder)
    assert [rank.rank for rank in whole.ranks] == [0]
    assert whole.problems == ("1 of 2 ranks have no readable record",)


@pytest.mark.parametrize("damage", ["", "{", '{"schema_version": 1}', "[]"])
def test_a_damaged_run_is_refused_in_one_line_and_still_listed(here, said, damage):
    folder = write_folder(here, run_record(), plan())
    (folder.path / "run.json").write_text(damage)
    code, out, err = said("report", "one")
    assert code == 2
    assert out == ""
    assert err.startswith("plan: error: ")
    assert err.count("\n") == 1
    code, out, _ = said("runs")
    assert code == 0
    assert "unreadable" in out


def test_records_of_an_attempt_before_are_not_the_latest(here):
    """A rank that has not written yet must not be shown with what it wrote before."""
    attempts = (run_record().attempts[0], replace(run_record().attempts[0], number=2))
    whole = read_whole(write_folder(here, run_record(attempts=attempts), plan(), rank_record(0)))
    assert whole.ranks == ()


def test_a_running_run_whose_supervisor_is_gone_is_lost(here, said):
    record = run_record(status="running", ended=None, exit_code=None, supervisor_pid=gone())
    write_folder(here, record, plan())
    assert read_whole(write_folder(here, replace(record, run_id="two", supervisor_pid=os.getpid()), None)).status == (
        "lost"
    )  # the number is taken again by a process that began after the record was written
    code, out, _ = said("runs", "--json")
    assert code == 0
    assert [run["status"] for run in json.loads(out)["runs"]] == ["lost", "lost"]
    assert "which looked after it, is gone" in said("report", "one")[1]


def test_a_running_run_is_running(here):
    import psutil

    began = psutil.Process().create_time()
    record = run_record(status="running", ended=None, updated=began + 60)
    assert supervisor_alive(record)
    assert read_whole(write_folder(here, record, None)).status == "running"


def test_runs_are_listed_oldest_first(here, said):
    for name in ("20260102-000000-b", "20260101-000000-a"):
        write_folder(here, run_record(run_id=name), plan(), rank_record(0))
    code, out, _ = said("runs")
    rows = out.splitlines()
    assert code == 0
    assert rows[0].split() == ["run", "status", "script", "strategy", "attempts", "steps", "age"]
    assert [row.split()[:6] for row in rows[1:]] == [
        ["20260101-000000-a", "succeeded", "train.py", "DDP", "1", "3"],
        ["20260102-000000-b", "succeeded", "train.py", "DDP", "1", "3"],
    ]
    assert said("report", "latest")[1].startswith("20260102-000000-b")
    assert said("report", "20260101")[1].startswith("20260101-000000-a")
    assert said("report", "runs/20260101-000000-a")[1].startswith("20260101-000000-a")
    code, _, err = said("report", "2026")
    assert code == 2
    assert "2 runs in" in err


def test_a_folder_without_runs(here, said):
    code, out, err = said("runs")
    assert (code, out) == (0, "")
    assert "there are no runs" in err
    assert json.loads(said("runs", "--json")[1])["runs"] == []
    code, _, err = said("report", "latest")
    assert code == 3
    assert "plan runs" in err


def test_reading_reports_needs_no_torch(here):
    write_folder(here, run_record(), plan(), rank_record(0, summary=StepSummary()), rank_record(1))
    code = (
        "import sys; from gpu_plan.cli import main; main(['report', 'one']); main(['runs']);"
        "bad = {'torch', 'transformers', 'matplotlib', 'textual', 'accelerate'} & set(sys.modules); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr
    assert BASE < MIB * 100
