"""Waits for one launch to end, or ends it: interrupts, hangs, peers that do not notice a failure (I/O)."""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gpu_plan.executor.job import Placement
from gpu_plan.executor.records.run import Phase
from gpu_plan.executor.supervise.causes.host_memory import data_limit
from gpu_plan.executor.supervise.causes.stacks import ask_for_stacks
from gpu_plan.executor.supervise.follow.beginning import Beginning
from gpu_plan.executor.supervise.follow.heartbeat import Heartbeat
from gpu_plan.executor.supervise.follow.hosts import Meeting
from gpu_plan.executor.supervise.follow.logs import Output, bound_logs, launcher_reports, rank_logs
from gpu_plan.executor.supervise.follow.pulse import Pulse, Pulses
from gpu_plan.executor.supervise.interrupts import Interrupts
from gpu_plan.executor.supervise.limits import Limits
from gpu_plan.executor.supervise.processes import tree
from gpu_plan.executor.supervise.processes.activity import Activity
from gpu_plan.executor.supervise.processes.launch import Started
from gpu_plan.executor.supervise.processes.strays import reap, send

_LEAVING = 2
_REPORT_BYTES = 8192
_ABSENCE = 5.0
"""Seconds between two looks that a busy machine may take: what goes beyond is this process's own standing still."""
_CLOSING = "closing signal"
"""In torch's elastic agent's warning when a rank has failed (torch.distributed.elastic.multiprocessing.api, _close)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the wait ended. Nothing of the launch runs any more."""

    launcher_code: int
    interrupted: str | None = None
    hung_seconds: float | None = None
    asked_for_stacks: bool = False
    killed: frozenset[int] = frozenset()
    shots: tuple[str, ...] = ()
    """What the supervisor itself killed by SIGKILL, and why, one line each."""
    launcher_shot: bool = False
    """Whether the launcher was among it."""
    gone: frozenset[int] = frozenset()
    """Ranks whose process had left, and was not sent away by us, while their record said that they ran."""
    stopped: Mapping[int, str] = field(default_factory=dict)
    """By rank, who of it stood stopped by a signal when the watch gave up: `its process`, `its child 4711`."""
    data_limits: Mapping[int, int] = field(default_factory=dict)
    """By rank, what its own limit on data (RLIMIT_DATA, RLIMIT_AS) allowed, in bytes; ranks without one are missing."""
    strays: tuple[int, ...] = ()
    """Pids that had to be killed after the launcher had ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told meanwhile."""

    output: Callable[[bool, str], None]
    pulse: Callable[[tuple[Pulse, ...]], None]
    note: Callable[[str], None]
    phase: Callable[[str, tuple[Phase, ...]], None]
    """The attempt's present phase, and those that are over."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """One wait. Use `wait` once."""

    started: Started
    folder: Path
    logs: Path
    limits: Limits
    interrupts: Interrupts
    listener: Listener
    began: float
    """When the attempt began; seconds since the epoch."""
    meeting: Meeting | None = None
    """Where the hosts of this run meet; None on one."""
    expected: int = 1
    """Ranks on this host; of a job that an engine places, on all nodes."""
    placement: Placement | None = None
    _here: str = field(default_factory=socket.gethostname)
    _pulses: Pulses = field(init=False)
    _output: Output = field(init=False)
    _heartbeat: Heartbeat = field(init=False)
    _beginning: Beginning = field(init=False)
    _activity: Activity = field(default_factory=Activity)
    _latest: tuple[Pulse, ...] = ()
    _killed: set[int] = field(default_factory=set)
    _shots: list[str] = field(default_factory=list)
    _launcher_shot: bool = False
    _told: bool = False
    """Whether a placed launcher was told to end its ranks on all nodes."""
    _gone: set[int] = field(default_factory=set)
    _stopped: dict[int, str] = field(default_factory=dict)
    _looked: float = field(default_factory=time.monotonic)
    _failed_at: float | None = None
    _data_limits: dict[int, int] = field(default_factory=dict)
    _next_look: float = 0.0
    _next_bound: float = 0.0

    def __post_init__(self) -> None:
        self._pulses = Pulses(self.folder)
        self._output = Output(self.logs)
        self._heartbeat = Heartbeat(limits=self.limits, began=time.monotonic())
        self._beginning = Beginning(
            began=self.began,
            expected=self.expected,
            meeting=self.meeting,
            tell_phase=self.listener.phase,
            note=self.listener.note,
        )

    def wait(self) -> Ending:
        """Returns when every process of the launch has ended."""
        interrupted, hung = None, None
        asked = False
        strays: list[int] = []
        try:
            while self.started.poll() is None:
                self._look()
                interrupted = self.interrupts.first
                if interrupted is not None:
                    self._end_politely()
                    break
                now = self._excuse_own_absence()
                if self._heartbeat.hung(now):
                    hung = self._heartbeat.silent(now)
                    self._stopped = self._find_stopped()
                    asked = self._collect_stacks()
                    break
                self._end_deaf_peers(now)
                self._read_limits()
                time.sleep(self.limits.poll)
        finally:
            strays = self._clear()
        self._look(final=True)
        return Ending(
            launcher_code=self.started.wait(),
            interrupted=interrupted,
            hung_seconds=hung,
            asked_for_stacks=asked,
            killed=frozenset(self._killed),
            shots=tuple(self._shots),
            launcher_shot=self._launcher_shot,
            gone=frozenset(self._gone),
            stopped=dict(self._stopped),
            data_limits=dict(self._data_limits),
            strays=tuple(strays),
        )

    def _look(self, final: bool = False) -> None:
        for error, text in self._output.more(started=bool(self._latest) or final):
            self.listener.output(error, text)
        now = time.monotonic()
        if now < self._next_look and not final:
            return
        self._next_look = now + self.limits.pulse
        pulses, changed = self._pulses.look()
        if changed:
            self._latest = pulses
            self._heartbeat.see(pulses, now)
            self.listener.pulse(pulses)
        if not final:
            self._heartbeat.awaits_hosts = self._beginning.look(pulses, now, self.started.members.follow)
            self._gone |= {pulse.rank for pulse in pulses if pulse.runs and not self._runs(pulse)} - self._sent_away()
        doubtful = self._heartbeat.silent(now) > self._heartbeat.bound / 2
        if doubtful and self._activity.busy(self._at_work(pulses)):
            self._heartbeat.active(now)
        if now >= self._next_bound:
            self._next_bound = now + 10.0
            bound_logs(self.logs, self.limits.log_bytes)

    def _excuse_own_absence(self) -> float:
        """Now. Where this process itself was stopped, or had no turn, that time is nobody's silence."""
        now = time.monotonic()
        absent = now - self._looked - _ABSENCE
        if absent > 0:
            self._heartbeat.excuse(absent)
        self._looked = now
        return now

    def _sent_away(self) -> set[int]:
        return {pulse.rank for pulse in self._latest if pulse.pid in self._killed}

    def _find_stopped(self) -> dict[int, str]:
        """Ranks that a signal has stopped, themselves or a child of theirs: their peers wait in vain."""
        processes, found = tree.table(), {}
        for pulse in self._local(self._latest):
            own = [pulse.pid, *sorted(tree.below([pulse.pid], processes))]
            for pid in own:
                if pid in processes and processes[pid].state in tree.STOPPED:
                    found[pulse.rank] = "its process" if pid == pulse.pid else f"its child {pid}"
                    break
        return found

    def _at_work(self, pulses: tuple[Pulse, ...]) -> list[int]:
        """Whose activity counts: the ranks', and before there are any the launcher's."""
        return [pulse.pid for pulse in self._local(pulses) if pulse.runs] or self.started.members.follow()

    def _end_politely(self) -> None:
        """SIGTERM to the elastic agent, which passes it on; a single rank gets it itself. Then SIGKILL to all."""
        launcher = self.started.pid
        below = self.started.members.pids(without=(launcher,))
        agent = rank_logs(self.logs, 0, "stdout") is not None or not below or self.placement is not None
        send([launcher] if agent else below, signal.SIGTERM)
        until = time.monotonic() + self.limits.end
        while time.monotonic() < until and not self.interrupts.impatient and self.started.poll() is None:
            time.sleep(self.limits.poll)

    def _collect_stacks(self) -> bool:
        self.listener.note("no step has ended for too long: asking the ranks for their stacks, then ending them")
        asked = ask_for_stacks(pulse.pid for pulse in self._local(self._latest) if pulse.runs)
        if asked:
            time.sleep(self.limits.stacks)
        return bool(asked)

    def _end_deaf_peers(self, now: float) -> None:
        """Kills ranks that go on long after another one has failed: the agent itself would wait for half a minute."""
        if not self._somebody_failed():
            self._failed_at = None
            return
        if self._failed_at is None:
            self._failed_at = now
        # A rank that has failed and is still there may be saving what it can, such as its tracker's figures.
        leaving = any(pulse.failed and _runs(pulse.pid) for pulse in self._local(self._latest))
        patience = self.limits.peers * (_LEAVING if leaving else 1)
        if now - self._failed_at > patience:
            self._shoot([pulse for pulse in self._local(self._latest) if _runs(pulse.pid)], "another rank had failed")
            if self.placement is not None and not self._told:
                self._told = True
                self.started.send(signal.SIGTERM)  # passed on to every node
            if now - self._failed_at > patience + self.limits.launcher and self.started.poll() is None:
                self._shots.append(f"the launcher (pid {self.started.pid}): it did not end though no rank was left")
                self._launcher_shot = True
                self.started.send(signal.SIGKILL)

    def _shoot(self, ranks: list[Pulse], why: str) -> None:
        """SIGKILL to ranks that go on where they should have ended, said and noted as our own doing."""
        for pulse in ranks:
            if pulse.pid not in self._killed:
                self._shots.append(f"rank {pulse.rank} (pid {pulse.pid}): it went on after {why}")
        self._killed.update(pulse.pid for pulse in ranks)
        send([pulse.pid for pulse in ranks], signal.SIGKILL)

    def _somebody_failed(self) -> bool:
        """By its own record, or because the agent has begun to end the ranks. A rank that is only gone may have left
        with code 0, and the others may have work to do."""
        if any(pulse.failed for pulse in self._latest):
            return True
        gone = any(pulse.runs and not self._runs(pulse) for pulse in self._latest)
        return gone and any(_CLOSING in report for report in launcher_reports(self.logs, _REPORT_BYTES))

    def _read_limits(self) -> None:
        """A script may set limits of its own at any time, and die of them soon."""
        for pulse in self._local(self._latest):
            limit = data_limit(pulse.pid)
            if limit is not None:
                self._data_limits[pulse.rank] = limit

    def _clear(self) -> list[int]:
        """Ends whatever is left. After a launcher that ended by itself, strays get a moment and SIGTERM first."""
        started, members = self.started, self.started.members
        alone = started.poll() is not None
        if not alone:
            there = members.pids()
            self._killed.update(there)
            self._launcher_shot |= started.pid in there
            if there:
                self._shots.append(f"{len(there)} processes, the launcher's and the ranks': {self._why_all()}")
            send(there, signal.SIGKILL)
            started.wait()
            self._sweep()
        killed = members.end_all(self.limits.end if alone else 0.0)
        reap(pulse.pid for pulse in self._local(self._latest))
        started.close()
        return killed if alone else []

    def _sweep(self) -> None:
        """Ends what a killed launch has left on other nodes."""
        if self.placement is not None and self.placement.sweep:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(self.placement.sweep, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)

    def _local(self, pulses: tuple[Pulse, ...]) -> list[Pulse]:
        """Those of ranks on this host. Elsewhere a pid names another process."""
        return [pulse for pulse in pulses if pulse.host in ("", self._here)]

    def _runs(self, pulse: Pulse) -> bool:
        """Whether the rank's process is there; on another host, whether its record says so."""
        return _runs(pulse.pid) if pulse.host in ("", self._here) else pulse.runs

    def _why_all(self) -> str:
        if self.interrupts.first is not None:
            return f"they went on {self.limits.end:.0f} s after {self.interrupts.first}"
        return "the run had hung" if self._heartbeat.hung(self._looked) else "the supervisor gave up"


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
