"""How ranks end, and what their records say of it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gpu_plan.executor.deviations import deviations
from gpu_plan.executor.run_folder import RunFolder
from tests.execution.launches import BIN, JOBS, directly, environment_for, launch
from tests.support.tiny_plan import PARAMETERS, tiny_plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("how", "code", "status", "kind", "message"),
    [
        ("exception", 1, "exception", "ValueError", "the data is bad"),
        ("exit", 3, "exit", "SystemExit", "3"),
        ("words", 1, "exit", "SystemExit", "no data"),
        ("interrupt", 130, "interrupted", "KeyboardInterrupt", ""),
    ],
)
def test_a_script_that_ends_itself(tmp_path, how, code, status, kind, message):
    done = directly(tmp_path, "failing.py", how)
    (rank,) = done.ranks
    assert (done.code, rank.exit_code, rank.status) == (code, code, status)
    assert (rank.error.type, rank.error.message) == (kind, message)
    assert rank.error.file == str(JOBS / "failing.py")
    assert rank.summary.steps == 2
    assert "executor" not in done.output  # the traceback is the script's own


def test_the_model_is_not_the_planned_one(tmp_path):
    done = launch(tmp_path, "accelerate_loop.py", options={"expected_parameters": PARAMETERS + 1})
    assert "the script trains a model of 22,688 parameters" in done.output
    for rank in done.ranks:
        assert (rank.status, rank.exit_code, rank.error.type) == ("exit", 4, "gpu_plan.ParameterMismatch")
        assert rank.summary.steps == 0


def test_fsdp_that_became_ddp_is_not_believed(tmp_path):
    done = launch(tmp_path, "accelerate_loop.py", strategy="fsdp", environment={"ACCELERATE_USE_CPU": "true"})
    assert done.code == 0, done.output
    lines = deviations(tiny_plan("fsdp", zero_stage=3), done.ranks)
    assert any(line.startswith("the strategy was ddp, planned is fsdp") for line in lines)


def test_one_process_is_not_believed(tmp_path):
    config = tmp_path / "one.yaml"
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 2\nnum_machines: 1\n"
        "machine_rank: 0\nuse_cpu: true\n"
    )
    done = subprocess.run(
        [
            BIN / "accelerate",
            "launch",
            "--config_file",
            config,
            "-m",
            "gpu_plan.executor.runner",
            JOBS / "accelerate_loop.py",
        ],
        cwd=tmp_path,
        env=environment_for(tmp_path, {}, "ddp"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = deviations(tiny_plan("ddp"), RunFolder(tmp_path).ranks())
    assert lines[0].startswith("one process ran alone, the plan has 2 ranks")


def test_children_do_not_touch_the_record(tmp_path):
    done = directly(tmp_path, "forks.py")
    assert done.code == 0, done.output
    (rank,) = done.ranks
    assert (rank.status, rank.summary.steps) == ("done", 2)


def begin(folder, *command):
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment_for(folder, {}, "plain"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(condition, seconds=1500):
    """Until it holds; how long that takes is not the question."""
    for _ in range(seconds * 10):
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("never happened")


def stepped(folder, count):
    def ranks():
        found = list(RunFolder(folder).ranks())
        return found if len(found) == count and all(rank.summary.steps >= 1 for rank in found) else None

    return ranks


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_stacks_on_request_then_terminated(tmp_path):
    process = begin(tmp_path, sys.executable, "-m", "gpu_plan.executor.runner", str(JOBS / "failing.py"), "wait")
    try:
        wait_for(stepped(tmp_path, 1))
        process.send_signal(signal.SIGUSR1)
        stacks = tmp_path / "logs" / "rank-0.stacks"
        wait_for(lambda: "in fail" in stacks.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(1500) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert RunFolder(tmp_path).read_rank(0).status == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_die_with_their_launcher(tmp_path, number):
    # Rank 1 sleeps in Python, rank 0 waits for it inside a collective, where no Python handler could run.
    process = begin(
        tmp_path, str(BIN / "torchrun"), "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
        "127.0.0.1:0", "--log-dir", "logs", "-m", "gpu_plan.executor.runner", str(JOBS / "failing.py"), "wait", "1",
    )  # fmt: skip
    pids = []
    try:
        pids = [rank.pid for rank in wait_for(stepped(tmp_path, 2))]
        process.send_signal(number)
        process.wait(1500)
        wait_for(lambda: all(gone(pid) for pid in pids))
    finally:
        for pid in (*pids, process.pid):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    wanted = "running" if number == signal.SIGKILL else "interrupted"
    assert {rank.status for rank in RunFolder(tmp_path).ranks()} == {wanted}
