"""Kubeflow's SDK, really run: by its local-process backend, and against a stand-in of Kubernetes that starts pods.

Skipped, by name, where the SDK is not installed.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_plan.executor.run_folder import RunFolder, list_runs
from tests.support import kube
from tests.support.engine_runs import PLAN, Trial, at_step, ended, held_to, losses
from tests.support.fault_job import SCRIPT
from tests.support.fault_runs import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("kubeflow") is None, reason="pip install kubeflow"),
]


def test_a_local_process_runs_and_its_code_is_the_command_s(tmp_path):
    trial = Trial(on=("--on", "kubeflow", "--set", "kubeflow.backend=local"), variables={})
    words = ("--steps", "4", "--fault", "exit", "--at", "2")
    process = trial.start(tmp_path, "--max-restarts", "0", script=SCRIPT, script_words=words, nodes=1, each=2)
    record, output = ended(process, tmp_path)
    assert (record.status, record.exit_code) == ("failed", 3), output
    assert "Kubeflow Trainer job plan-" in output
    assert [rank.rank for rank in list_runs(tmp_path)[-1].ranks()] == [0, 1]


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kube.Kubelet]:
    with kube.cluster(tmp_path_factory.mktemp("kube")) as made:
        yield made


@pytest.fixture(scope="module")
def trial(kubelet: kube.Kubelet) -> Trial:
    own = ("--set", "kubeflow.volume=claim", "--set", f"kubeflow.python={sys.executable}")
    on = ("--on", "kubeflow", "--namespace", "team", *own)
    return Trial(on=on, variables={"KUBECONFIG": str(kubelet.folder / "config")})


@pytest.fixture(scope="module")
def uninterrupted(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float | None]:
    folder = tmp_path_factory.mktemp("whole")
    record, output = ended(trial.start(folder, script_words=("--steps", "24")), folder)
    assert (record.status, record.exit_code) == ("succeeded", 0), output
    assert "Kubeflow Trainer job slow-loop-" in output
    run = list_runs(folder)[-1]
    assert [rank.rank for rank in run.ranks()] == [0, 1]
    return losses(run)


def stepping(run: RunFolder, attempt: int, step: int) -> bool:
    """Whether every rank of that attempt has done the step."""
    ranks = [rank for rank in run.ranks() if rank.attempt == attempt]
    return len(ranks) == 2 and all(rank.steps and rank.steps[-1].step >= step for rank in ranks)


def test_pods_are_lost_and_the_run_goes_on(kubelet, trial, tmp_path, uninterrupted):
    process = trial.start(tmp_path, script_words=("--pause", "1.0"))
    run = at_step(tmp_path, 4)
    (name,) = [name for name in kubelet.jobs if name.endswith(run.run_id[-6:])]
    kubelet.pods[name][1].lose()
    assert wait_until(lambda: stepping(run, 2, 9), 600)
    kubelet.pods[name][0].lose()  # with the supervisor in it
    record, output = ended(process, tmp_path)
    assert record.status == "succeeded", output
    assert len(record.attempts) == 3, output
    assert {attempt.cause for attempt in record.attempts[:2]} <= {"requeued", "node_lost", "signal"}
    held_to(run, uninterrupted)
    assert kubelet.jobs[name]["status"]["conditions"][0]["type"] == "Complete"


def test_pods_of_a_run_that_is_over_train_nothing_again(kubelet, trial, tmp_path):
    words = ("--steps", "4", "--fault", "exit", "--at", "2")
    process = trial.start(tmp_path, "--max-restarts", "0", script=SCRIPT, script_words=words)
    record, output = ended(process, tmp_path)
    assert (record.status, record.exit_code, len(record.attempts)) == ("failed", 3, 1), output
    assert "is suspended" in output


def test_cancel_deletes_the_train_job(kubelet, trial, tmp_path):
    process = trial.start(tmp_path, script_words=("--steps", "500", "--pause", "0.5"))
    run = at_step(tmp_path, 2)
    words = (*PLAN, "cancel", "latest")
    done = subprocess.run(words, cwd=tmp_path, env=trial.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "interrupted"), done.stderr
    record, output = ended(process, tmp_path)
    assert (record.status, record.exit_code) == ("interrupted", 143), output
    assert not [name for name in kubelet.jobs if name.endswith(run.run_id[-6:])]
