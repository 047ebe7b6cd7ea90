"""A real Ray: two `ray start` on this machine, gloo between the ranks. Skipped, by name, where it is not.

Everything that can be done to one run is done to one run: each start of Ray Train takes its time.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from gpu_plan.executor.names import RUN_ID
from gpu_plan.executor.run_folder import RunFolder, list_runs
from tests.support.engine_runs import PLAN, Trial, at_step, ended, held_to, losses
from tests.support.fault_job import SCRIPT
from tests.support.fault_runs import wait_until
from tests.support.ray_cluster import RayCluster, missing, ray_cluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(2) as made:
        yield made


@pytest.fixture(scope="module")
def trial(cluster: RayCluster) -> Trial:
    return Trial(on=("--on", "ray", "--address", cluster.url), variables={})


@pytest.fixture(scope="module")
def uninterrupted(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float | None]:
    folder = tmp_path_factory.mktemp("whole")
    record, output = ended(trial.start(folder, script_words=("--steps", "24")), folder)
    assert (record.status, record.exit_code) == ("succeeded", 0), output
    assert "Ray job plan-" in output
    assert "first step" in output
    report = subprocess.run((*PLAN, "report", "latest", "--json"), cwd=folder, capture_output=True, text=True)
    told = json.loads(report.stdout)
    assert (told["engine"]["engine"], told["status"], len(told["ranks"])) == ("ray", "succeeded", 2)
    return losses(list_runs(folder)[-1])


def attempts(run: RunFolder) -> int:
    return len(run.read_run().attempts)


def stepping(run: RunFolder, attempt: int, step: int) -> bool:
    """Whether every rank of that attempt has done the step."""
    ranks = [rank for rank in run.ranks() if rank.attempt == attempt]
    return len(ranks) == 2 and all(rank.steps and rank.steps[-1].step >= step for rank in ranks)


def workers(run: RunFolder) -> list[psutil.Process]:
    """Ray Train's workers that hold the run's nodes."""
    guards = [
        one
        for one in psutil.process_iter(["cmdline"])
        if any(str(run.path) in word for word in one.info["cmdline"] or ())
        and any(word.endswith("engines.lead") for word in one.info["cmdline"] or ())
        and any(word.endswith("guard.py") for word in one.info["cmdline"] or ())
    ]
    return [one.parent() for one in guards]  # type: ignore[misc]


def test_a_rank_a_worker_and_a_node_are_lost_and_the_run_goes_on(cluster, trial, tmp_path, uninterrupted):
    process = trial.start(tmp_path, script_words=("--pause", "1.5"))
    run = at_step(tmp_path, 3)
    listed = subprocess.run((*PLAN, "runs", "--json"), cwd=tmp_path, capture_output=True, text=True)
    (line,) = json.loads(listed.stdout)["runs"]
    assert (line["status"], line["engine"].partition(" ")[0]) == ("running", "ray")
    os.kill(run.read_rank(1).pid, signal.SIGKILL)  # a new attempt in the same job
    assert wait_until(lambda: stepping(run, 2, 9), 1200)
    (worker,) = workers(run)
    worker.kill()  # Ray Train begins its group again
    assert wait_until(lambda: stepping(run, 3, 15), 1800)
    cluster.lose("n1")
    cluster.join()
    record, output = ended(process, tmp_path, 1800)
    assert record.status == "succeeded", output
    causes = [attempt.cause for attempt in record.attempts]
    assert causes[:2] == ["signal", "requeued"], output
    assert causes[-2] in ("node_lost", "requeued"), output
    assert causes[-1] == "success"
    held_to(run, uninterrupted)


def test_the_job_s_own_code_is_the_command_s(trial, tmp_path):
    words = ("--steps", "4", "--fault", "exit", "--at", "2")
    record, output = ended(trial.start(tmp_path, "--max-restarts", "0", script=SCRIPT, script_words=words), tmp_path)
    assert (record.status, record.exit_code) == ("failed", 3), output


def test_cancel_while_it_waits_for_nodes_and_while_it_runs(trial, tmp_path):
    waiting, running = tmp_path / "waiting", tmp_path / "running"
    for folder, nodes in ((waiting, 3), (running, 2)):
        folder.mkdir()
        process = trial.start(folder, script_words=("--steps", "500", "--pause", "0.5"), nodes=nodes)
        if folder is running:
            at_step(folder, 2)
        else:
            assert wait_until(lambda: list((tmp_path / "waiting").rglob("driver.log")), 300)
        done = subprocess.run((*PLAN, "cancel", "latest"), cwd=folder, capture_output=True, text=True)
        assert (done.returncode, done.stdout.split()[-1]) == (0, "interrupted"), done.stderr
        record, output = ended(process, folder)
        assert (record.status, record.exit_code) == ("interrupted", 143), output
        assert wait_until(lambda: not left(list_runs(folder)[-1].run_id), 60)  # noqa: B023


def left(run_id: str) -> list[int]:
    """Processes of a run."""
    found = []
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(RUN_ID) == run_id:
            found.append(process.pid)
    return found


def test_out_of_memory_climbs_the_ladder_in_the_same_job(trial, tmp_path):
    from tests.execution.test_faults_ladder import LONG, PINNED
    from tests.execution.test_faults_ladder import SCRIPT as LADDER

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LONG))
    pinned = ["2x1xcpu" if word == "2xcpu" else word for word in PINNED]
    subprocess.run((*PLAN, "model", "--seq-len", "2048", *pinned), cwd=tmp_path, check=True, capture_output=True)
    words = ("--config", "model", "--length", "2048", "--budget", "80")
    record, output = ended(trial.start(tmp_path, script=LADDER, script_words=words), tmp_path)
    assert [attempt.cause for attempt in record.attempts] == ["oom", "success"], output
    assert "checkpointing none → full" in record.attempts[1].changes[0]


def test_facts_and_the_doctor(cluster, trial, tmp_path):
    def told(*words: str) -> str:
        done = subprocess.run((*PLAN, *words), cwd=tmp_path, env=trial.environment, capture_output=True, text=True)
        return next((line for line in done.stdout.splitlines() if line.startswith("Cluster")), done.stderr)

    plan = ("EleutherAI/pythia-70m", "--pin", "--gpus")
    assert "2x1xcpu" in told(*plan, f"ray:{cluster.url}")
    assert "no node has H100; they have no GPUs" in told(*plan, f"ray:{cluster.url}:H100")
    from tests.support.engine_runs import write_plan

    write_plan(tmp_path)
    words = (*PLAN, "doctor", "--on", "ray", "--address", cluster.url, "--plan", "plan.json", "--json")
    done = subprocess.run(words, cwd=tmp_path, env=trial.environment, capture_output=True, text=True, timeout=900)
    seen = {check["id"]: check["seen"] for check in json.loads(done.stdout)["machine"]}
    assert "2 of 2 answered" in seen["nodes"], done.stderr
    assert "1 MiB over 2 nodes" in seen["all-reduce"]
