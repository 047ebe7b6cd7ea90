"""Why an attempt ended, from the evidence: pure.

The launcher's return code only says that something went wrong, and the elastic agent's "root cause" can name a rank
that died of another's failure. What the ranks wrote of themselves is believed first: a failed allocation, then death
by a signal that nobody here sent, then an exception, then an exit; among equals the earliest.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import Cause
from gpu_plan.executor.supervise.causes.evidence import Evidence, RankExit
from gpu_plan.executor.supervise.causes.losses import NOT_FINITE_LOSS

LAUNCHER_FAILED, PREFLIGHT = 125, 4
MISMATCHES = ("gpu_plan.ParameterMismatch", "gpu_plan.CheckpointMismatch")
"""Exceptions of the runner that end a script which is not what was planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one attempt ended."""

    cause: Cause
    exit_code: int
    """What `plan --execute` ends with if this was the last attempt."""
    explanation: str
    culprit: int | None = None


def classify(evidence: Evidence) -> Verdict:
    """The verdict on one attempt."""
    if evidence.interrupted is not None:
        name = evidence.interrupted
        return Verdict(cause="interrupted", exit_code=interrupted_code(name), explanation=f"interrupted by {name}")
    if evidence.hung_seconds is not None:
        return _hang(evidence)
    if evidence.launcher_code == 0:
        return _success(evidence)
    for judge in (_mismatch, _not_finite, _oom, _aborted_after_success, _signal, _exception, _exit, _launcher_signal):
        verdict = judge(evidence)
        if verdict is not None:
            return verdict
    return _rest(evidence)


def interrupted_code(name: str) -> int:
    """What a run ends with that was told to end by the signal of that name: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + signal.Signals[name]


def _earliest(ranks: Sequence[RankRecord], *statuses: str) -> RankRecord | None:
    found = [rank for rank in ranks if rank.status in statuses]
    return min(found, key=lambda rank: (rank.updated, rank.rank)) if found else None


def _success(evidence: Evidence) -> Verdict:
    unfinished = [rank.rank for rank in evidence.ranks if rank.status != "done"]
    note = f"; rank {unfinished[0]} left without completing its record" if unfinished else ""
    what = f"{len(evidence.ranks)} ranks done" if evidence.ranks else "the launcher ended well; no rank left a record"
    return Verdict(cause="success", exit_code=0, explanation=what + note)


def _hang(evidence: Evidence) -> Verdict:
    running = [rank for rank in evidence.ranks if rank.status in ("starting", "running")]
    if not running and len(evidence.ranks) >= evidence.world_size and all(r.status == "done" for r in evidence.ranks):
        return Verdict(
            cause="success", exit_code=0, explanation="all ranks done; their processes did not end and were killed"
        )
    behind = min(running, key=lambda rank: (rank.summary.steps, rank.updated), default=None)
    ahead = max((rank.summary.steps for rank in running), default=0)
    apart = [place for place in evidence.places if not place.waits]
    culprit = behind.rank if behind is not None and behind.summary.steps < ahead else None
    if len(apart) == 1 < len(evidence.places):
        culprit = apart[0].rank  # the others wait inside torch for this one
    stood = "; ".join(f"rank {place.rank} stood at {place.where}" for place in (apart or evidence.places)[:2])
    where = f"; stacks are in {evidence.stacks}" if evidence.stacks else ""
    steps = f"after step {_last(running)}" if ahead else "before the first step"
    return Verdict(
        cause="hang",
        exit_code=128 + signal.SIGKILL,
        culprit=culprit,
        explanation=f"no step ended for {evidence.hung_seconds:.0f} s {steps}{f'; {stood}' if stood else ''}; all ranks"
        f" were killed{where}",
    )


def _last(ranks: Sequence[RankRecord]) -> int:
    return max(rank.steps[-1].step for rank in ranks if rank.steps)


def _mismatch(evidence: Evidence) -> Verdict | None:
    for rank in evidence.ranks:
        if rank.error is not None and rank.error.type in MISMATCHES:
            return Verdict(
                cause="deviation", exit_code=PREFLIGHT, culprit=rank.rank, explanation=_one_line(rank.error.message)
            )
    return None


def _not_finite(evidence: Evidence) -> Verdict | None:
    """The end that --stop-on-nan asks for."""
    stopped = [rank for rank in evidence.ranks if rank.error is not None and rank.error.type == NOT_FINITE_LOSS]
    if not stopped:
        return None
    rank = min(stopped, key=lambda rank: (rank.summary.first_not_finite or 0, rank.rank))
    return Verdict(
        cause="nan",
        exit_code=_code(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} was ended by --stop-on-nan {_step(rank)}",
    )


def _oom(evidence: Evidence) -> Verdict | None:
    rank = _earliest(evidence.ranks, "oom")
    if rank is None:
        return None
    asked = rank.error.requested_bytes if rank.error else None
    size = f" of {asked / 2**20:,.1f} MiB" if asked else ""
    message = f": {_one_line(rank.error.message)}" if rank.error else ""
    return Verdict(
        cause="oom",
        exit_code=_code(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} ran out of memory, an allocation{size} failed {_step(rank)}{message}",
    )


def _aborted_after_success(evidence: Evidence) -> Verdict | None:
    """gloo's threads may abort a rank whose script has ended well; nothing is lost then."""
    done = len(evidence.ranks) >= evidence.world_size and all(rank.status == "done" for rank in evidence.ranks)
    harmless = (-signal.SIGABRT, -signal.SIGTERM)
    if not done or not evidence.exits or any(end.exit_code not in harmless for end in evidence.exits):
        return None
    if not any(end.exit_code == -signal.SIGABRT for end in evidence.exits):
        return None
    return Verdict(
        cause="success", exit_code=0, explanation="all ranks done; one aborted in its teardown afterwards (SIGABRT)"
    )


def _signal(evidence: Evidence) -> Verdict | None:
    by_rank = {rank.rank: rank for rank in evidence.ranks}
    for end in evidence.exits:
        if end.exit_code >= 0 or end.pid in evidence.killed:
            continue
        rank = by_rank.get(end.rank)
        # The agent ends the others with SIGTERM: only the one it saw first can have been ended from outside so.
        if end.exit_code == -signal.SIGTERM and not (end.first and evidence.launcher_signal is None):
            continue
        # A rank that reported its failure and was then shot did not die of the shot; one that waits has no record.
        if rank is not None and rank.status in ("oom", "exception", "exit"):
            continue
        if end.exit_code == -signal.SIGKILL and _others_failed(evidence, end):
            continue
        return _killed(evidence, end, rank)
    return None


def _others_failed(evidence: Evidence, end: RankExit) -> bool:
    """Whether another rank reported a failure of its own: the agent then kills those that ignore SIGTERM."""
    return not end.first and any(
        rank.status in ("oom", "exception", "exit") for rank in evidence.ranks if rank.rank != end.rank
    )


def _killed(evidence: Evidence, end: RankExit, rank: RankRecord | None) -> Verdict:
    number = -end.exit_code
    name = _signal_name(number)
    step = f" {_step(rank)}" if rank is not None else ""
    if number == signal.SIGKILL and evidence.oom_kills:
        count = evidence.oom_kills
        return Verdict(
            cause="host_oom",
            exit_code=128 + number,
            culprit=end.rank,
            explanation=f"rank {end.rank} was killed by the kernel{step}: the machine or its cgroup ran out of memory"
            f" ({count} out-of-memory kill{'s' if count > 1 else ''} counted meanwhile)",
        )
    return Verdict(
        cause="signal",
        exit_code=128 + number,
        culprit=end.rank,
        explanation=f"rank {end.rank}{f' (pid {end.pid})' if end.pid else ''} was killed by {name}{step}",
    )


def _exception(evidence: Evidence) -> Verdict | None:
    rank = _earliest(evidence.ranks, "exception")
    if rank is None:
        return None
    error = rank.error
    what = f"{error.type}: {_one_line(error.message)}" if error else "an exception"
    where = f" at {error.file}:{error.line}" if error and error.file else ""
    return Verdict(
        cause="exception",
        exit_code=_code(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} raised {what}{where} {_step(rank)}",
    )


def _exit(evidence: Evidence) -> Verdict | None:
    rank = _earliest([rank for rank in evidence.ranks if rank.exit_code != 0], "exit")
    if rank is not None:
        return Verdict(
            cause="exit",
            exit_code=_code(rank),
            culprit=rank.rank,
            explanation=f"rank {rank.rank} ended itself with exit code {_code(rank)} {_step(rank)}",
        )
    started = {rank.rank for rank in evidence.ranks}
    for end in evidence.exits:
        known = end.rank in started and next(r for r in evidence.ranks if r.rank == end.rank).status
        if end.exit_code > 0 and known in ("starting", "running"):
            return Verdict(
                cause="exit",
                exit_code=end.exit_code,
                culprit=end.rank,
                explanation=f"rank {end.rank} left with exit code {end.exit_code} without an exception (os._exit?)",
            )
    return None


def _launcher_signal(evidence: Evidence) -> Verdict | None:
    code = evidence.launcher_code or 0
    name = evidence.launcher_signal or (_signal_name(-code) if code < 0 else None)
    if name is None:
        return None
    if name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        return Verdict(
            cause="interrupted", exit_code=interrupted_code(name), explanation=f"the launcher was ended by {name}"
        )
    kernel = name == "SIGKILL" and evidence.oom_kills > 0
    return Verdict(
        cause="host_oom" if kernel else "launcher",
        exit_code=LAUNCHER_FAILED,
        explanation=f"the launcher was killed by {'the kernel, out of memory' if kernel else name}; ranks died with it",
    )


def _rest(evidence: Evidence) -> Verdict:
    failed = _earliest(evidence.ranks, "peer_failure", "interrupted")
    if failed is not None:
        message = f": {_one_line(failed.error.message)}" if failed.error else ""
        return Verdict(
            cause="signal" if failed.status == "interrupted" else "exception",
            exit_code=_code(failed),
            culprit=None,
            explanation=f"rank {failed.rank} lost its peers {_step(failed)}, {_who(evidence)}{message}"
            if failed.status == "peer_failure"
            else f"rank {failed.rank} was told to end from outside {_step(failed)}",
        )
    error = f": {_one_line(evidence.launcher_error)}" if evidence.launcher_error else ""
    if not evidence.ranks:
        explanation = f"the launcher ended with {evidence.launcher_code} before any rank ran the script{error}"
    else:
        explanation = f"the launcher ended with {evidence.launcher_code}, no rank reported a failure{error}"
    return Verdict(cause="launcher", exit_code=LAUNCHER_FAILED, explanation=explanation)


def _who(evidence: Evidence) -> str:
    if evidence.hosts > 1:
        return "one on another host failed first: the run there says why"
    return "which of them failed first is not known"


def _code(rank: RankRecord) -> int:
    return rank.exit_code if rank.exit_code else 1


def _step(rank: RankRecord) -> str:
    last = rank.steps[-1].step if rank.steps else None
    if rank.status in ("starting", "running"):  # it had no time to write: its record is a moment old
        return "before its first recorded step" if last is None else f"soon after step {last}"
    return "before its first step" if last is None else f"after step {last}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
