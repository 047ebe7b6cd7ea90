"""`--hosts`: two commands on this machine in one shared folder; the first leads, and the run is restarted for both."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from gpu_plan.executor.run_folder import RunFolder, list_runs
from tests.support.engine_runs import PLAN, SLOW, at_step, held_to, losses, write_plan
from tests.support.fault_job import ENVIRONMENT
from tests.support.fault_runs import wait_until

pytestmark = pytest.mark.slow


def start(folder: Path, *script_words: str) -> "list[subprocess.Popen[str]]":
    """The same command for each of two hosts that are this machine."""
    write_plan(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = (*PLAN, "--plan", "plan.json", "--execute", str(SLOW), "--hosts", f"127.0.0.1:{port},127.0.0.1")
    return [again(folder, words, rank, *script_words) for rank in range(2)]


def again(folder: Path, words: tuple[str, ...], rank: int, *script_words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*words, "--machine-rank", str(rank), "--", *script_words), cwd=folder, env={**os.environ, **ENVIRONMENT},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def reached(run: RunFolder, attempt: int, step: int) -> bool:
    ranks = [rank for rank in run.ranks() if rank.attempt == attempt]
    return len(ranks) == 2 and all(rank.steps and rank.steps[-1].step >= step for rank in ranks)


def test_both_hosts_begin_again_from_one_checkpoint(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    for process in (started := start(whole, "--steps", "24")):
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, output
    assert len(list_runs(whole)) == 1  # one run, whoever of them is asked
    expected = losses(list_runs(whole)[-1])
    assert sorted(expected) == list(range(1, 25))
    harmed = tmp_path / "harmed"
    harmed.mkdir()
    started = start(harmed, "--pause", "1.0")
    run = at_step(harmed, 5)
    os.kill(run.read_rank(1).pid, signal.SIGKILL)
    assert wait_until(lambda: reached(run, 2, 9), 900)
    started[1].send_signal(signal.SIGKILL)  # the second host's command and its agent
    for pid in children_of(started[1].pid):
        os.kill(pid, signal.SIGKILL)
    started[1].wait()
    words = tuple(str(word) for word in started[1].args)  # type: ignore[union-attr]
    started[1] = subprocess.Popen(
        words, cwd=harmed, env={**os.environ, **ENVIRONMENT}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    outputs = [process.communicate(timeout=1800)[0] for process in started]
    record = run.read_run()
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    assert record.status == "succeeded", outputs[0]
    assert record.attempts[0].cause == "signal"
    assert record.attempts[1].cause in ("requeued", "node_lost", "signal", "exception")
    held_to(run, expected)


def children_of(pid: int) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        if "gpu_plan.executor.engines.agents.agent" in words and words[-1] == "1":
            found += [process.pid, *(child.pid for child in process.children(recursive=True))]
    return found
