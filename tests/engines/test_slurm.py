"""A real SLURM: two node daemons on this machine, gloo between their ranks. Skipped, by name, where it is not."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.planner.plan.files import save
from tests.support import launch_plans
from tests.support.bare_environment import bare_environment
from tests.support.engine_runs import PLAN, Trial, at_step, ended, losses, write_plan
from tests.support.fault_job import SCRIPT
from tests.support.fault_runs import steps_done, wait_until
from tests.support.slurm_cluster import Slurm, missing, slurm

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def engine() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        with slurm(folder, "n0", "n1", "h0", "h1") as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(engine: Slurm) -> dict[str, str]:
    return trial(engine).environment


def trial(engine: Slurm) -> Trial:
    return Trial(on=("--on", "slurm"), variables=engine.environment)


@pytest.fixture(scope="module")
def uninterrupted(engine: Slurm, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float | None]:
    folder = tmp_path_factory.mktemp("whole")
    process = trial(engine).start(folder, script_words=("--steps", "24"))
    record, output = ended(process, folder)
    assert record.status == "succeeded", output
    assert "SLURM job" in output
    assert [phase.name for phase in record.phases][-1] == "queued"
    report = subprocess.run((*PLAN, "report", "latest", "--json"), cwd=folder, capture_output=True, text=True)
    told = json.loads(report.stdout)
    assert (told["engine"]["engine"], told["status"], len(told["ranks"])) == ("slurm", "succeeded", 2)
    return losses(list_runs(folder)[-1])


def test_a_killed_rank_is_started_again_in_the_same_job(engine, tmp_path, uninterrupted):
    def kill(run: RunFolder) -> None:
        os.kill(run.read_rank(1).pid, signal.SIGKILL)

    record = trial(engine).goes_on(tmp_path, kill, uninterrupted)
    assert record.attempts[0].cause == "signal"


def test_one_node_with_two_ranks(engine, tmp_path, uninterrupted):
    record, output = ended(trial(engine).start(tmp_path, script_words=("--steps", "24"), nodes=1, each=2), tmp_path)
    run = list_runs(tmp_path)[-1]
    assert (record.status, [rank.local_rank for rank in run.ranks()]) == ("succeeded", [0, 1]), output
    assert losses(run) == uninterrupted


def test_the_engine_s_requeue_goes_on_from_the_newest_checkpoint(engine, tmp_path, uninterrupted):
    def requeue(run: RunFolder) -> None:
        number = json.loads((run.engine / "engine.json").read_text())["job"]
        engine.run("scontrol", "requeue", number)
        hasten(engine, number)

    record = trial(engine).goes_on(tmp_path, requeue, uninterrupted)
    assert record.attempts[0].cause == "requeued"


def test_a_lost_node_s_job_goes_on(engine, tmp_path, uninterrupted):
    def lose(run: RunFolder) -> None:
        engine.lose_node("n1")
        number = json.loads((run.engine / "engine.json").read_text())["job"]
        assert wait_until(lambda: "PENDING" in engine.run("scontrol", "show", "job", number), 120)
        engine.start_node("n1")
        hasten(engine, number)

    record = trial(engine).goes_on(tmp_path, lose, uninterrupted)
    assert record.attempts[0].cause in ("node_lost", "requeued")


def test_the_time_limit_s_signal_queues_the_job_again(engine, tmp_path, uninterrupted):
    def warn(run: RunFolder) -> None:
        # What --signal=B:USR1 sends, before its minute.
        number = json.loads((run.engine / "engine.json").read_text())["job"]
        engine.run("scancel", "--batch", "--signal=USR1", number)
        assert wait_until(lambda: "PENDING" in engine.run("scontrol", "show", "job", number), 120)
        hasten(engine, number)

    record = trial(engine).goes_on(tmp_path, warn, uninterrupted, "--time", "10", "--set", "slurm.signal=60")
    assert (record.attempts[0].cause, record.attempts[0].explanation) == ("requeued", "SLURM's time limit came")


def test_out_of_memory_climbs_the_ladder_in_the_same_job(engine, tmp_path):
    from tests.execution.test_faults_ladder import LONG, PINNED
    from tests.execution.test_faults_ladder import SCRIPT as LADDER

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LONG))
    pinned = ["2x1xcpu" if word == "2xcpu" else word for word in PINNED]
    subprocess.run((*PLAN, "model", "--seq-len", "2048", *pinned), cwd=tmp_path, check=True, capture_output=True)
    script = ("--config", "model", "--length", "2048", "--budget", "80")
    process = subprocess.Popen(
        (*PLAN, "--plan", "plan.json", "--execute", str(LADDER), "--on", "slurm", "--", *script), cwd=tmp_path,
        env=environment(engine), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    record, output = ended(process, tmp_path)
    assert [attempt.cause for attempt in record.attempts] == ["oom", "success"], output
    assert "checkpointing none → full" in record.attempts[1].changes[0]
    assert str(record.attempts[1].resumed_from).endswith("step-2")


def hasten(engine: Slurm, number: str) -> None:
    """SLURM itself lets a requeued job wait for two minutes."""
    assert wait_until(lambda: "Restarts=0" not in engine.run("scontrol", "show", "job", number), 120)
    time.sleep(1.0)
    with contextlib.suppress(AssertionError):  # it has nodes already
        engine.run("scontrol", "update", f"JobId={number}", "StartTime=now")


def test_the_job_s_own_code_is_the_command_s(engine, tmp_path):
    words = ("--steps", "4", "--fault", "exit", "--at", "2")
    record, output = ended(
        trial(engine).start(tmp_path, "--max-restarts", "0", script=SCRIPT, script_words=words), tmp_path
    )
    assert (record.status, record.exit_code) == ("failed", 3), output


def test_ctrl_c_ends_the_following_alone(engine, tmp_path):
    process = trial(engine).start(tmp_path, script_words=("--steps", "500", "--pause", "0.5"))
    run = at_step(tmp_path, 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "Ctrl-C ends the following, not the job" in output
    assert "no longer followed: job" in output
    seen = steps_done(run)
    assert wait_until(lambda: steps_done(run) > seen, 60)  # it goes on
    done = subprocess.run(
        (*PLAN, "cancel", "latest"), cwd=tmp_path, env=environment(engine), capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == "interrupted", done.stderr


def test_cancel_while_it_waits_and_while_it_runs(engine, tmp_path):
    waiting, running = tmp_path / "waiting", tmp_path / "running"
    for folder, words in ((waiting, ("--set", "slurm.begin=now+600")), (running, ())):
        folder.mkdir()
        process = trial(engine).start(folder, *words, script_words=("--steps", "500", "--pause", "0.5"))
        if folder is running:
            at_step(folder, 2)
        else:
            assert wait_until(lambda: list((tmp_path / "waiting").rglob("engine.json")), 120)
        done = subprocess.run(
            (*PLAN, "cancel", "latest"), cwd=folder, env=environment(engine), capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.split()[-1]) == (0, "interrupted"), done.stderr
        record, output = ended(process, folder)
        assert (record.status, record.exit_code) == ("interrupted", 143), output
    again = subprocess.run((*PLAN, "cancel", "latest"), cwd=running, capture_output=True, text=True)
    assert (again.returncode, "is over already" in again.stderr) == (2, True)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero2"])
def test_an_export_runs_without_this_package(engine, strategy, tmp_path):
    from tests.execution.test_export_elsewhere import KINDS
    from tests.execution.test_export_elsewhere import SCRIPT as TRAIN

    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "neighbour.py").write_text("LAYERS = 2\n")
    plan = launch_plans.saved(strategy, "2x1xcpu", micro=2, steps=1, precision="fp32")
    save(plan, str(project / "plan.json"), force=True)
    words = ("export", "plan.json", "--to", "slurm", "--partition", "cpu", "--time", "10", "-o", "launch")
    subprocess.run((*PLAN, *words), cwd=project, check=True, capture_output=True)
    moved = tmp_path / "an other place"
    shutil.move(project / "launch", moved)
    shutil.rmtree(project)
    out = tmp_path / "out"
    out.mkdir()
    bare = bare_environment(tmp_path)
    done = subprocess.run(
        ("sbatch", "--wait", "--parsable", str(moved / "job.sbatch"), "--out", str(out)), cwd=tmp_path,
        env={**bare, "SLURM_CONF": engine.environment["SLURM_CONF"], "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    logs = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert done.returncode == 0, (done.stderr, logs)
    ranks = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert [(rank["world"], rank["kind"].rpartition(".")[2]) for rank in ranks] == [(2, KINDS[strategy])] * 2
    assert ranks[0]["losses"] == ranks[1]["losses"]
    assert Path(ranks[0]["script"]) == moved / "code" / "train.py"


def test_facts_from_outside_and_inside(engine, tmp_path):
    def cluster(*words: str) -> tuple[int, str]:
        done = subprocess.run(words, cwd=tmp_path, env=environment(engine), capture_output=True, text=True, timeout=600)
        line = next((line for line in done.stdout.splitlines() if line.startswith("Cluster")), "")
        return done.returncode, line or done.stderr

    plan = (*PLAN, "EleutherAI/pythia-70m", "--pin", "--gpus")
    assert "Cluster  2x8xH100 " in cluster(*plan, "slurm:gpu")[1]
    assert "Cluster  8xH100 " in cluster(*plan, "1xslurm:gpu")[1]
    assert "no node has a100; they have 8xh100" in cluster(*plan, "slurm:gpu:a100")[1]
    assert "2 are up" in cluster(*plan, "3xslurm:gpu")[1]
    assert "no such partition" in cluster(*plan, "slurm:nowhere")[1]
    inside = ("salloc", "--quiet", "--partition=gpu", "--nodes=2", "--gpus-per-node=h100:4")
    assert "Cluster  2x4xH100 " in cluster(*inside, *plan, "auto")[1]


def test_a_folder_that_a_node_does_not_see_ends_the_run_in_one_line(engine, tmp_path):
    engine.lose_node("n1")
    engine.start_node("n1", hides=tmp_path)
    try:
        record, output = ended(trial(engine).start(tmp_path, script_words=("--steps", "4")), tmp_path)
    finally:
        engine.lose_node("n1")
        engine.start_node("n1")
    assert (record.status, record.exit_code, record.attempts) == ("failed", 4, ()), output
    (line,) = [line for line in output.splitlines() if "left no word" in line][-1:]
    assert "1 of 2 left no word" in line  # srun may end node 0 before it has one
    assert "it is not shared" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partition", "nowhere"), "SLURM refuses the job: "),
        (("--time", "soon"), "SLURM refuses the job: "),
        (("--set", "slurm.constraint=none"), "SLURM refuses the job: "),
        (("--partition", "cpu", "--set", "slurm.gres=gpu:a100:2"), "SLURM refuses the job: "),
    ],
)
def test_slurm_s_own_refusal_is_passed_on(engine, tmp_path, words, said):
    process = trial(engine).start(tmp_path, *words)
    output, _ = process.communicate(timeout=300)
    lines = [line for line in output.splitlines() if "error" in line]
    assert (process.returncode, len(lines)) == (2, 1), output
    assert said in lines[0]
    assert not list_runs(tmp_path)


def test_the_doctor_looks_at_every_node(engine, tmp_path):
    write_plan(tmp_path)
    words = (*PLAN, "doctor", "--on", "slurm", "--plan", "plan.json", "--json")
    done = subprocess.run(words, cwd=tmp_path, env=environment(engine), capture_output=True, text=True, timeout=600)
    told = json.loads(done.stdout)
    assert (done.returncode, told["counts"]["error"]) == (0, 0), done.stdout
    seen = {check["id"]: check["seen"] for check in told["machine"]}
    assert "2 of 2 answered: n0, n1" in seen["nodes"]
    assert "1 MiB over 2 nodes" in seen["all-reduce"]
    assert not list(tmp_path.glob(".plan-doctor-*"))
