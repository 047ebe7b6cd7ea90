"""What the supervisor reads and keeps: records, logs, stacks, processes of a run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_plan.executor.names import HANG_SECONDS, RUN_ID
from gpu_plan.executor.supervise.causes.host_memory import counter, data_limit, oom_kills
from gpu_plan.executor.supervise.causes.stacks import handles, parse_place
from gpu_plan.executor.supervise.follow.logs import Follower, Output, bound_logs, rank_logs, settle_logs, tail
from gpu_plan.executor.supervise.follow.pulse import Pulses, parse_pulse
from gpu_plan.executor.supervise.interrupts import interrupts
from gpu_plan.executor.supervise.limits import Limits, read_limits
from gpu_plan.executor.supervise.machine import describe_machine
from gpu_plan.executor.supervise.processes.strays import Members, _by_psutil
from gpu_plan.planner.errors import UsageError

RECORD = {
    "rank": 1, "pid": 7, "status": "running", "started": 1.0, "updated": 2.0,
    "steps": [{"step": 4}, {"step": 5}],
    "summary": {"steps": 2, "seconds_median": 0.5, "last_loss": 1.5, "peak_resident_bytes": 1000, "tokens": 64},
}  # fmt: skip


def test_a_pulse_is_read_from_a_record() -> None:
    pulse = parse_pulse(json.dumps(RECORD).encode())
    assert pulse is not None
    assert (pulse.rank, pulse.last_step, pulse.steps, pulse.memory_bytes, pulse.memory_kind) == (
        1, 5, 2, 1000, "resident",
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"rank": "x"}', b"[" * 10_000])
def test_what_is_no_record_gives_no_pulse(content: bytes) -> None:
    assert parse_pulse(content) is None


def test_unchanged_records_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "rank-1.json").write_text(json.dumps(RECORD))
    (tmp_path / "rank-0.json").write_text("{")
    pulses = Pulses(tmp_path)
    found, changed = pulses.look()
    assert ([pulse.rank for pulse in found], changed) == ([1], True)
    assert pulses.look() == (found, False)


def test_a_file_is_followed_without_cutting_characters(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    follower = Follower(path)
    assert follower.more() == ""
    whole = "überall ✓\n".encode()
    path.write_bytes(whole[:-3])
    first = follower.more()
    path.write_bytes(whole)
    assert first + follower.more() == "überall ✓\n"


def test_rank_zeros_own_files_are_shown_not_the_launchers(tmp_path: Path) -> None:
    (tmp_path / "launcher.stdout.log").write_text("[default0]:hello\n")
    output = Output(tmp_path)
    assert output.more(started=False) == []
    files = tmp_path / "none_x" / "attempt_0" / "0"
    files.mkdir(parents=True)
    (files / "stdout.log").write_text("hello\n")
    assert rank_logs(tmp_path, 0, "stdout") == files / "stdout.log"
    assert output.more(started=True) == [(False, "hello\n")]


def test_accelerates_own_traceback_is_not_shown(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "/x/bin/accelerate", line 6, in <module>\n'
    (tmp_path / "launcher.stderr.log").write_text("a warning\n" + trace)
    assert Output(tmp_path).more(started=True) == [(True, "a warning\n")]


def test_logs_give_their_disk_back_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    with path.open("w") as writer:
        for number in range(60_000):
            writer.write(f"line {number} {'x' * 40}\n")
        writer.flush()
        bound_logs(tmp_path, 256 * 1024)
        assert path.stat().st_blocks * 512 <= 512 * 1024
        writer.write("the end\n")
    settle_logs(tmp_path, 256 * 1024)
    text = path.read_text()
    assert len(text) < 300_000
    assert text.startswith("[earlier output was dropped]\nline ")
    assert text.endswith("line 59999 " + "x" * 40 + "\nthe end\n")
    assert "\0" not in text


def test_tail_begins_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("one\ntwo\nthree\n")
    assert tail(path, 8) == "three\n"
    assert tail(path) == "one\ntwo\nthree\n"
    assert tail(tmp_path / "missing") == ""


STACK = f"""Thread 0x00007fbd8bb296c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fbd8ca36b80 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "/home/me/train.py", line 100 in main
  File "{Path(__file__).parents[3] / "executor/runner/script.py"}", line 33 in run_script
  File "<frozen runpy>", line 198 in _run_module_as_main
"""


def test_the_users_line_is_found_in_stacks() -> None:
    place = parse_place(STACK, 0)
    assert place is not None
    assert (place.where, place.waits) == ("train.py:100 in main", True)
    lines = STACK.splitlines(keepends=True)
    apart = parse_place("".join(line for line in lines if "torch" not in line), 0)
    assert apart is not None
    assert not apart.waits
    assert parse_place("nothing", 0) is None


def test_processes_of_a_run_are_found_and_ended() -> None:
    name = f"test-{os.getpid()}"
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(900)"
    child = subprocess.Popen(
        (sys.executable, "-c", deaf), env={**os.environ, RUN_ID: name}, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert handles(os.getpid(), signal.SIGUSR1) is False
        members = Members(run_id=name)
        assert members.pids() == [child.pid]
        assert Members(run_id=name + "x").pids() == []
        assert _by_psutil(name) == [child.pid]
        assert members.end_all(0.3) == [child.pid]
        assert members.pids() == []
    finally:
        child.kill()
        child.wait()


def test_interrupts_are_noted_and_handlers_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interrupts() as noted:
        os.kill(os.getpid(), signal.SIGTERM)
        assert (noted.first, noted.impatient) == ("SIGTERM", False)
        os.kill(os.getpid(), signal.SIGINT)
        assert noted.impatient
    assert signal.getsignal(signal.SIGTERM) == before


def test_out_of_memory_kills_are_counted(tmp_path: Path) -> None:
    group = tmp_path / "user.slice"
    group.mkdir()
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    process = tmp_path / "cgroup"
    process.write_text("0::/user.slice\n")
    assert oom_kills(process, tmp_path) == 2
    (tmp_path / "memory" / "jobs").mkdir(parents=True)
    (tmp_path / "memory" / "memory.oom_control").write_text("under_oom 0\noom_kill 7\n")
    (tmp_path / "memory" / "jobs" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    process.write_text("8:cpu,memory:/jobs\n0::/\n")
    assert oom_kills(process, tmp_path) == 5, "version 1: our own group's, not the machine's"
    process.write_text("8:memory:/path/on/the/host\n0::/\n")
    assert oom_kills(process, tmp_path) == 7, "a container without a namespace: what is mounted is the group"
    assert counter("oom_kill x\n", "oom_kill") == 0
    assert oom_kills() >= 0
    assert data_limit(os.getpid()) is None


def test_secrets_stay_out_of_the_environment_file() -> None:
    told = describe_machine({"GPU_PLAN_RUN_ID": "r", "ACCELERATE_API_KEY": "s", "HF_TOKEN": "t", "NCCL_DEBUG": "INFO"})
    variables = told["variables"]
    assert isinstance(variables, dict)
    assert variables["NCCL_DEBUG"] == "INFO"
    assert not {"ACCELERATE_API_KEY", "HF_TOKEN"} & set(variables)


def test_the_bound_of_a_hang_can_be_told() -> None:
    assert read_limits({}) == Limits()
    assert read_limits({HANG_SECONDS: "0"}).hang == 0
    with pytest.raises(UsageError, match="seconds"):
        read_limits({HANG_SECONDS: "soon"})
