"""A SLURM of its own on this machine: munged, slurmctld and several `slurmd -N`, ended with the test.

Debian's slurm-wlm and munge, as root; each daemon's files lie below one folder, each port is free when it is chosen.
Nothing of another SLURM on the machine is touched. The nodes `n0`, `n1` are real and take jobs; `h0`, `h1` say that
they have eight H100, whose device files are copies of /dev/null.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue")
_SECONDS = 60.0
_CONF = """\
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=8
MinJobAge=3600
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={n0} CPUs=4 RealMemory=8000
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=4 RealMemory=8000
NodeName=h0 NodeHostname={host} NodeAddr=127.0.0.1 Port={h0} CPUs=4 RealMemory=16000 Gres=gpu:h100:8 Feature=ib
NodeName=h1 NodeHostname={host} NodeAddr=127.0.0.1 Port={h1} CPUs=4 RealMemory=16000 Gres=gpu:h100:8 Feature=ib
PartitionName=cpu Nodes=n[0-1] Default=YES MaxTime=60 State=UP
PartitionName=gpu Nodes=h[0-1] MaxTime=60 State=UP
"""


def missing() -> str:
    """Why no SLURM can be started here; empty where one can."""
    absent = [name for name in COMMANDS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"SLURM is not installed: no {', '.join(absent)} (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "SLURM's daemons are started by root alone"


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(kw_only=True)
class Slurm:
    """Daemons at work."""

    folder: Path
    pids: dict[str, int] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """For clients."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}

    def run(self, *words: str) -> str:
        """Standard output of a client's command."""
        done = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=_SECONDS
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start_node(self, name: str, *, hides: Path | None = None) -> None:
        """One `slurmd -N`; `hides`: a folder that this node does not see, by a mount of its own over it."""
        words = ("slurmd", "-N", name, "-f", str(self.folder / "slurm.conf"))
        over = 'mount -t tmpfs none "$0" && exec "$@"'
        self.run(*words) if hides is None else self.run("unshare", "--mount", "sh", "-c", over, str(hides), *words)
        self._note(f"slurmd-{name}")

    def lose_node(self, name: str) -> None:
        """Kills a node's daemon and all that runs below it, as a power cut would."""
        dead = {self.pids[f"slurmd-{name}"]}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == name and self._ours(process):
                    dead.add(process.pid)
                    parent = process.parent()
                    if parent is not None and "slurmstepd" in " ".join(parent.cmdline()):
                        dead.add(parent.pid)
        for pid in dead:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        (self.folder / f"slurmd-{name}.pid").unlink(missing_ok=True)  # it would be taken for the next daemon's

    def _ours(self, process: psutil.Process) -> bool:
        return process.environ().get("SLURM_CONF", "").startswith(str(self.folder))

    def _note(self, name: str) -> None:
        path = self.folder / f"{name}.pid"
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                self.pids[name] = int(path.read_text())
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} did not start: {self.folder}")

    def begin(self, *nodes: str) -> None:
        """Starts all daemons and waits until the nodes are idle."""
        conf = self.folder / "slurm.conf"
        names = ("controller", "n0", "n1", "h0", "h1")
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        conf.write_text(_CONF.format(folder=self.folder, host=socket.gethostname(), **ports))
        (self.folder / "gres.conf").write_text(f"NodeName=h[0-1] Name=gpu Type=h100 File={self.folder}/gpu[0-7]\n")
        for number in range(8):
            os.mknod(self.folder / f"gpu{number}", 0o600 | 0o020000, os.makedev(1, 3))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.run(
            "munged", "--force", *(f"--{name}={self.folder}/{file}" for name, file in (
                ("key-file", "munge.key"), ("socket", "munge.socket"), ("pid-file", "munged.pid"),
                ("log-file", "munged.log"), ("seed-file", "munge.seed"),
            )),
        )  # fmt: skip
        self._note("munged")
        self.run("slurmctld", "-f", str(conf))
        self._note("slurmctld")
        for name in nodes:
            self.start_node(name)
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            idle = self.run("sinfo", "--noheader", "--Node", "--format", "%N %T").splitlines()
            if {f"{name} idle" for name in nodes} <= {line.strip() for line in idle}:
                return
            time.sleep(0.2)
        raise AssertionError(f"not all of {nodes} are idle: {idle}")

    def end(self) -> None:
        """Cancels what runs, then ends every daemon by its own pid."""
        with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
            self.run("scancel", "--user", "root")
            until = time.monotonic() + 30
            while time.monotonic() < until and self.run("squeue", "--noheader").strip():
                time.sleep(0.2)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(1.0)


@contextlib.contextmanager
def slurm(folder: Path, *nodes: str) -> Iterator[Slurm]:
    """A SLURM whose `nodes` take jobs, ended behind the block; `folder` is short, for the sockets in it."""
    made = Slurm(folder=folder)
    try:
        made.begin(*nodes)
        yield made
    finally:
        made.end()


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
