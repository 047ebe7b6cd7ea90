"""Two supervisors, one job: what befalls a rank of one ends both, and neither goes on without the other."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.run_folder import list_runs
from gpu_plan.planner.plan.files import save
from tests.support.fault_job import ENVIRONMENT, SCRIPT, saved_plan
from tests.support.fault_runs import alive


def start(folder: Path, *arguments: str) -> "list[subprocess.Popen[str]]":
    """The same command for each of two hosts that are this machine, each in a folder of its own."""
    saved = saved_plan()
    cluster = {**saved.cluster, "spec": "2x1xcpu", "nodes": 2, "gpus_per_node": 1}
    save(replace(saved, cluster=cluster), folder / "plan.json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = (sys.executable, "-m", "gpu_plan", "--plan", str(folder / "plan.json"), "--max-restarts", "1")
    words += ("--execute", str(SCRIPT), "--hosts", f"127.0.0.1:{port},127.0.0.1")
    started = []
    for machine in range(2):
        here = folder / f"machine-{machine}"
        here.mkdir()
        command = (*words, "--machine-rank", str(machine), "--", *arguments)
        started.append(
            subprocess.Popen(
                command, cwd=here, env={**os.environ, **ENVIRONMENT}, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    return started


@pytest.mark.slow
def test_a_killed_rank_ends_both_hosts(tmp_path: Path) -> None:
    started = start(tmp_path, "--steps", "8", "--save-every", "1", "--fault", "kill", "--at", "4", "--rank", "1")
    outputs = [process.communicate(timeout=1500)[0] for process in started]
    runs = [list_runs(tmp_path / f"machine-{machine}")[-1] for machine in range(2)]
    records = [run.read_run() for run in runs]
    assert [(record.status, len(record.attempts)) for record in records] == [("failed", 1)] * 2, "\n".join(outputs)
    # Ranks are numbered by the rendezvous, not by --machine-rank: the killed one may be on either.
    victim, peer = sorted(records, key=lambda record: record.exit_code != 137)
    assert "rank 1 " in victim.message
    assert "was killed by SIGKILL" in victim.message
    assert (peer.exit_code, peer.attempts[0].culprit) == (1, None)
    assert "one on another host failed first: the run there says why" in peer.message
    for machine, output in enumerate(outputs):
        said = [line for line in output.splitlines() if "plan: waiting for 1 of 2 hosts at 127.0.0.1:" in line]
        assert said, f"host {machine} did not say whom it waits for"
    for record, process, output in zip(records, started, outputs, strict=True):
        assert process.returncode == record.exit_code
        assert "run the command again on every host" in record.message
        assert "Traceback" not in output.split("plan: attempt 1 ended")[-1]
    assert not [pid for run in runs for pid in alive(run.run_id)]
