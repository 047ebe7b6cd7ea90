"""Kubeflow's SDK with its local-process backend, really run. Skipped, by name, where it is not installed."""

import importlib.util

import pytest

from gpu_plan.executor.run_folder import list_runs
from tests.support.engine_runs import Trial, ended
from tests.support.fault_job import SCRIPT

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
