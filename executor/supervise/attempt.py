"""One launch of the job, from its files to the verdict on it (I/O)."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.deviations import deviations, resized
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.environment import strategy_names
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.prepare import prepare
from gpu_plan.executor.launch.write import write_launch_files
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import Attempt
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.causes.classify import classify
from gpu_plan.executor.supervise.causes.disk import full_disks
from gpu_plan.executor.supervise.causes.evidence import (
    Evidence,
    RankExit,
    error_line,
    parse_exits,
    parse_launcher_signal,
)
from gpu_plan.executor.supervise.causes.host_memory import oom_kills
from gpu_plan.executor.supervise.causes.losses import not_finite
from gpu_plan.executor.supervise.causes.stacks import places
from gpu_plan.executor.supervise.causes.verdict import Verdict
from gpu_plan.executor.supervise.follow.hosts import free_port, meeting_of
from gpu_plan.executor.supervise.follow.logs import launcher_reports, rank_logs, settle_logs, tail
from gpu_plan.executor.supervise.follow.phases import phases
from gpu_plan.executor.supervise.interrupts import Interrupts
from gpu_plan.executor.supervise.limits import Limits
from gpu_plan.executor.supervise.processes.launch import start
from gpu_plan.executor.supervise.resumption import checkpoint_roots
from gpu_plan.executor.supervise.watch import Ending, Listener, Watch
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.files import save

_REPORT_BYTES = 256 * 1024
"""Of the launcher's stderr: the agent's report stands last, a few KiB for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An ended attempt with all that the next decision needs."""

    attempt: Attempt
    verdict: Verdict
    ranks: tuple[RankRecord, ...]
    data_limits: Mapping[int, int]
    """By rank, bytes of data that its process was allowed, where it was limited."""
    strays: int = 0
    """Processes that outlived the launcher and had to be killed."""

    @property
    def full_disk(self) -> Path | None:
        """What the culprit could not write for want of room; None where it did not fail so, or nobody knows where."""
        errors = (rank.error for rank in self.ranks if rank.rank == self.verdict.culprit)
        found = next((error.full_disk for error in errors if error is not None), None)
        return Path(found) if found and self.attempt.cause == "disk_full" else None

    @property
    def error_type(self) -> str | None:
        """Class of the exception that the culprit reported, if any."""
        errors = (rank.error for rank in self.ranks if rank.rank == self.verdict.culprit)
        return next((error.type for error in errors if error is not None), None)


def prepare_attempt(job: Job, number: int, folder: RunFolder, resume_from: Path | None) -> LaunchFiles:
    """Writes the plan and the launch files of the attempt into the run folder. Errors as `prepare` raises them."""
    files = prepare(job, attempt=number, folder=folder, resume_from=resume_from)
    if job.placement is not None and job.placement.head:
        # This node is the first of them, where the store of the rendezvous is to be.
        meet = {"PET_MASTER_ADDR": job.placement.head, "PET_MASTER_PORT": str(free_port())}
        files = replace(files, environment={**files.environment, **meet})
    save(job.saved, folder.plan, force=True)
    write_launch_files(files, folder.path)
    return files


def new_attempt(
    job: Job, number: int, files: LaunchFiles, *, resume_from: Path | None, first_step: int, changes: tuple[str, ...]
) -> Attempt:
    """The record of an attempt that is about to start."""
    return Attempt(
        number=number,
        command=files.command,
        started=time.time(),
        resumed_from=None if resume_from is None else str(resume_from),
        first_step=first_step,
        strategy=plain(job.saved.plan.strategy),
        changes=changes,
    )


def run_attempt(
    job: Job,
    attempt: Attempt,
    files: LaunchFiles,
    *,
    folder: RunFolder,
    limits: Limits,
    interrupts: Interrupts,
    listener: Listener,
) -> Outcome:
    """Launches, waits, and judges. Raises PreflightError where the launcher cannot be started."""
    kills = oom_kills()
    started = start(
        files,
        script=job.script,
        run_id=folder.run_id,
        directory=job.working_directory,
        logs=folder.logs,
        environment={names.RUN_FOLDER: str(folder.path), **strategy_names()},
        leave=job.leave_running,
    )
    ending = Watch(
        started=started,
        folder=folder.path,
        logs=folder.logs,
        limits=limits,
        interrupts=interrupts,
        listener=listener,
        began=attempt.started,
        meeting=meeting_of(job.hosts, job.machine_rank),
        expected=_expected(job),
        placement=job.placement,
    ).wait()
    ranks = tuple(rank for rank in folder.ranks() if rank.attempt == attempt.number)
    # Asked before logs are cut down: that would make room.
    disks = full_disks((job.working_directory, folder.path, *sorted(checkpoint_roots(ranks, job.working_directory))))
    evidence = replace(_evidence(ending, ranks, folder, job, oom_kills() - kills), full_disks=disks)
    if not evidence.exits and ending.launcher_code:
        evidence = replace(evidence, exits=own_exit(ranks, started.pid, ending.launcher_code))
    verdict = classify(evidence)
    losses = not_finite(ranks)
    if losses:
        verdict = replace(verdict, explanation=f"{verdict.explanation}; {losses}")
    added = resized(job.saved, ranks)
    if added:
        verdict = replace(verdict, explanation="; ".join(filter(None, (verdict.explanation, added))))
    folder.drop_reserves()
    settle_logs(folder.logs, limits.log_bytes)
    ended = replace(
        attempt,
        ended=time.time(),
        exit_code=ending.launcher_code,
        cause=verdict.cause,
        culprit=verdict.culprit,
        shots=ending.shots,
        explanation=verdict.explanation if verdict.cause != "exception" else "; ".join((verdict.explanation, *disks)),
        first_step=_first_step(ranks, attempt.first_step),
        last_step=_last_step(ranks),
        phases=phases(attempt.started, ranks, _expected(job), time.time()),
        deviations=deviations(job.saved, ranks),
    )
    verdict = replace(verdict, explanation=ended.explanation)
    return Outcome(
        attempt=ended, verdict=verdict, ranks=ranks, data_limits=ending.data_limits, strays=len(ending.strays)
    )


def _expected(job: Job) -> int:
    """Ranks on this host."""
    return max(1, job.saved.plan.strategy.world_size // max(1, len(job.hosts)))


def own_exit(ranks: tuple[RankRecord, ...], launcher: int, code: int) -> tuple[RankExit, ...]:
    """The end of a rank that was started without a launcher around it; nothing where there was one."""
    return tuple(
        RankExit(rank=rank.rank, exit_code=code, pid=rank.pid, first=True) for rank in ranks if rank.pid == launcher
    )


def _evidence(ending: Ending, ranks: tuple[RankRecord, ...], folder: RunFolder, job: Job, kills: int) -> Evidence:
    reports, number = _of_launchers(folder.logs)
    return Evidence(
        launcher_code=ending.launcher_code,
        ranks=ranks,
        exits=tuple(end for report in reports for end in parse_exits(report)),
        world_size=_expected(job),
        hosts=max(1, len(job.hosts)),
        interrupted=ending.interrupted,
        launcher_signal=None if number is None else signal.Signals(number).name,
        hung_seconds=ending.hung_seconds,
        stacks=str(folder.logs / "rank-*.stacks") if ending.asked_for_stacks else None,
        places=places(folder.logs) if ending.asked_for_stacks else (),
        killed=ending.killed,
        launcher_shot=ending.launcher_shot,
        gone=ending.gone,
        stopped=ending.stopped,
        silent=_silent(folder, job),
        oom_kills=kills,
        launcher_error=_first_words(folder.logs, next(filter(None, reversed(reports)), "")),
    )


def _silent(folder: RunFolder, job: Job) -> dict[int, int]:
    """Ranks of nodes whose launcher says neither how its ranks ended nor that it was told to end, where others do."""
    nodes = int(str(job.saved.cluster["nodes"]))
    if job.placement is None or nodes < 2:
        return {}
    reports = launcher_reports(folder.logs, _REPORT_BYTES)[1:]
    said = [bool(parse_exits(report)) or parse_launcher_signal(report) is not None for report in reports]
    if len(reports) != nodes or not any(said):
        return {}
    each = job.saved.plan.strategy.world_size // nodes
    return {rank: rank // each for rank in range(each * nodes) if not said[rank // each]}


def _of_launchers(logs: Path) -> tuple[list[str], int | None]:
    """What the launchers said last, and the signal that ended them, if one did.

    Of several nodes one that was told to end says of its ranks only that it ended them: others tell why.
    """
    reports = launcher_reports(logs, _REPORT_BYTES)
    signals = [parse_launcher_signal(report) for report in reports]
    untold = [report for report, number in zip(reports, signals, strict=True) if number is None]
    if len(reports) == 1 or len(untold) == 1:
        return reports, next((number for number in signals if number is not None), None)
    return untold, None


def _first_words(logs: Path, report: str) -> str:
    """What a rank that left no record said last, else the launcher."""
    for local_rank in range(8):
        path = rank_logs(logs, local_rank, "stderr")
        if path is not None and (said := error_line(tail(path))):
            return said
    return error_line(report)


def _first_step(ranks: tuple[RankRecord, ...], planned: int) -> int:
    return min((rank.steps[0].step for rank in ranks if rank.steps), default=planned)


def _last_step(ranks: tuple[RankRecord, ...]) -> int | None:
    """The last step that every rank finished; None where one finished none.

    A killed rank's record is a moment old: where others had time to write their end, theirs tells, since an optimizer
    step ends on all ranks or on none.
    """
    settled = [rank for rank in ranks if rank.status not in ("starting", "running")] or list(ranks)
    lasts = [rank.steps[-1].step if rank.steps else None for rank in settled]
    known = [step for step in lasts if step is not None]
    return min(known) if known and len(known) == len(lasts) else None
