"""What a run starts stays below its keeper, and ends with it: real processes, no torch."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.names import DAEMON, RUN_ID
from gpu_plan.executor.supervise.processes import tree
from gpu_plan.executor.supervise.processes.kernel import adopt_orphans
from gpu_plan.executor.supervise.processes.launch import Started, start
from gpu_plan.planner.errors import PreflightError
from tests.support.fault_runs import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's")
ESCAPES = {
    "a child": "sleep 1000 &",
    "a session of its own": "setsid sleep 1000 &",
    "an emptied environment": "env -i sleep 1000 &",
    "both, and no parent": "(env -i setsid sh -c 'sleep 1000 & echo $! > escaped' &)",
    "three generations": "env -i setsid sh -c 'setsid sh -c \"setsid sleep 1000 & exit\" & exit' &",
    "deaf": "env -i setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &",
}


def launched(folder: Path, shell: str, *, leave: tuple[str, ...] = (), **variables: str) -> Started:
    files = LaunchFiles(engine="accelerate", command=("/bin/sh", "-c", shell), environment={})
    return start(
        files, script=folder / "x.py", run_id=folder.name, directory=folder, logs=folder / "logs",
        environment=variables, leave=leave,
    )  # fmt: skip


def sleepers(started: Started) -> list[int]:
    """Everything below the keeper, found without the code under test but for the table."""
    processes = tree.table()
    return sorted(pid for pid in tree.below([started.keeper.pid], processes) if not processes[pid].ended)


def runs(pid: int) -> bool:
    process = tree.look(pid)
    return process is not None and not process.ended


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_nothing_that_the_launcher_leaves_behind_lives_on(tmp_path: Path, escape: str) -> None:
    started = launched(tmp_path, f"{escape}\nsleep 0.3; exit 7")
    assert started.wait() == 7
    left = sleepers(started)
    assert left, "the case shows nothing where nothing is left"
    killed = started.members.end_all(0.0)
    assert set(killed) >= set(left)
    started.close()
    assert not [pid for pid in left if runs(pid)]


def test_those_who_hear_sigterm_need_not_be_killed(tmp_path: Path) -> None:
    started = launched(tmp_path, "env -i setsid sleep 1000 & sleep 0.2")
    started.wait()
    assert started.members.end_all(30.0) == []
    started.close()


def test_what_the_user_declares_lives_on(tmp_path: Path) -> None:
    script = tmp_path / "my_daemon"
    script.write_text("#!/bin/sh\nsleep 999\n")
    script.chmod(0o755)
    started = launched(
        tmp_path,
        f"{DAEMON}=1 setsid sleep 1000 & env -i setsid ./my_daemon & sleep 1001 & sleep 0.5",
        leave=("my_daemon",),
    )
    started.wait()
    before = sleepers(started)
    started.members.end_all(0.0)
    started.close()
    alive = {pid for pid in before if runs(pid)}
    try:
        words = sorted((Path("/proc") / str(pid) / "cmdline").read_text().split("\0")[1] for pid in alive)
        assert words == ["./my_daemon", "1000", "999"]
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)


def test_the_declaration_is_not_inherited_from_whoever_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DAEMON, "1")
    started = launched(tmp_path, "sleep 1000 & exit 0")
    started.wait()
    assert len(started.members.end_all(0.0)) == 1
    started.close()


def test_a_killed_supervisor_takes_all_with_it_and_the_record_says_when(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    record = {"status": "running", "ended": None, "updated": 1.0, "attempts": [{"ended": None}], "message": ""}
    (folder / "run.json").write_text(json.dumps(record))
    code = (
        "import sys, time; from pathlib import Path; from tests.unit.supervise.test_supervise_keeper import launched;"
        "started = launched(Path(sys.argv[1]), sys.argv[2]); print(started.keeper.pid, flush=True); time.sleep(1000)"
    )
    shell = f"{ESCAPES['both, and no parent']}\n{ESCAPES['deaf']}\nsleep 1000"
    supervisor = subprocess.Popen(
        (sys.executable, "-c", code, str(folder), shell),
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert supervisor.stdout is not None
    keeper = int(supervisor.stdout.readline())
    assert wait_until(lambda: len(tree.below([keeper], tree.table())) >= 4, 60)
    there = tree.below([keeper], tree.table())
    before = time.time()
    supervisor.kill()
    supervisor.wait()
    assert wait_until(lambda: not any(runs(pid) for pid in (*there, keeper)), 60)
    found = json.loads((folder / "run.json").read_text())
    assert found["status"] == "lost"
    assert found["ended"] >= before - 1
    assert found["attempts"][0]["ended"] == found["ended"]
    assert str(supervisor.pid) in found["message"]


def test_a_killed_keeper_lets_nothing_go_that_was_seen(tmp_path: Path) -> None:
    with subreaper():
        started = launched(tmp_path, f"{ESCAPES['both, and no parent']}\nsleep 1000")
        note = tmp_path / "escaped"
        assert wait_until(lambda: note.exists() and note.read_text().endswith("\n"), 60)
        escaped = int(note.read_text())
        assert wait_until(lambda: {escaped, started.pid} <= set(started.members.follow()), 60)
        there = started.members.follow()
        started.keeper.kill()
        assert started.wait() == -signal.SIGKILL
        assert started.lost
        started.members.end_all(0.0)
        started.close()
        assert escaped in there
        assert not [pid for pid in there if runs(pid)]


def test_the_launcher_hears_signals_and_dies_with_its_keeper(tmp_path: Path) -> None:
    """The keeper ignores what a terminal sends; its child must not inherit that."""
    started = launched(tmp_path, "sleep 1000")
    started.send(signal.SIGTERM)
    assert started.wait() == -signal.SIGTERM
    started.close()


def test_a_command_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    files = LaunchFiles(engine="accelerate", command=("/no/such/launcher",), environment={})
    with pytest.raises(PreflightError, match="/no/such/launcher cannot be started: No such file"):
        start(files, script=tmp_path, run_id="x", directory=tmp_path, logs=tmp_path / "logs", environment={})


def test_the_environment_reaches_the_launcher_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\n'\""))
    started = launched(tmp_path, f'printf %s "$ODD${RUN_ID}$OWN" > found', OWN="ü")
    assert started.wait() == 0
    started.close()
    assert (tmp_path / "found").read_bytes() == b"\xff\n'\"" + tmp_path.name.encode() + "ü".encode()
