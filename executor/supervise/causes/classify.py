"""Why an attempt ended, from the evidence: pure.

The launcher's return code only says that something went wrong, and the elastic agent's "root cause" can name a rank
that died of another's failure. What the ranks wrote of themselves is believed first: a failed allocation, then death
by a signal that nobody here sent, then an exception, then an exit; among equals the earliest.
"""

import signal
from collections.abc import Sequence

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.supervise.causes.departure import judge_departure, judge_lost_node
from gpu_plan.executor.supervise.causes.evidence import Evidence, RankExit
from gpu_plan.executor.supervise.causes.full_disk import judge_full_disk
from gpu_plan.executor.supervise.causes.hang import judge_hang
from gpu_plan.executor.supervise.causes.losses import NOT_FINITE_LOSS
from gpu_plan.executor.supervise.causes.verdict import Verdict, code_of, one_line, signal_name, step_of

# 125 as of `timeout` and `docker run`: what started the command failed, not the command.
LAUNCHER_FAILED, PREFLIGHT = 125, 4
MISMATCHES = ("gpu_plan.ParameterMismatch", "gpu_plan.CheckpointMismatch")
"""Exceptions of the runner that end a script which is not what was planned."""


def classify(evidence: Evidence) -> Verdict:
    """The verdict on one attempt."""
    if evidence.interrupted is not None:
        name = evidence.interrupted
        return Verdict(cause="interrupted", exit_code=interrupted_code(name), explanation=f"interrupted by {name}")
    if evidence.hung_seconds is not None:
        return judge_hang(evidence)
    if evidence.launcher_code == 0:
        return _success(evidence)
    for judge in (
        _mismatch,
        _not_finite,
        _oom,
        _aborted_after_success,
        _signal,
        judge_full_disk,
        judge_lost_node,
        _exception,
        _exit,
        judge_departure,
        _launcher_signal,
    ):
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
    left = [rank for rank in evidence.ranks if rank.rank in unfinished[:1]]
    note = "".join(f"; rank {r.rank} left in the midst of its script (os._exit(0)?) {step_of(r)}" for r in left)
    of = f" of {len(evidence.ranks)}" if unfinished else ""
    done = len(evidence.ranks) - len(unfinished)
    what = f"{done}{of} ranks done" if evidence.ranks else "the launcher ended well; no rank left a record"
    return Verdict(cause="success", exit_code=0, explanation=what + note)


def _mismatch(evidence: Evidence) -> Verdict | None:
    for rank in evidence.ranks:
        if rank.error is not None and rank.error.type in MISMATCHES:
            return Verdict(
                cause="deviation", exit_code=PREFLIGHT, culprit=rank.rank, explanation=one_line(rank.error.message)
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
        exit_code=code_of(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} was ended by --stop-on-nan {step_of(rank)}",
    )


def _oom(evidence: Evidence) -> Verdict | None:
    rank = _earliest(evidence.ranks, "oom")
    if rank is None:
        return None
    asked = rank.error.requested_bytes if rank.error else None
    size = f" of {asked / 2**20:,.1f} MiB" if asked else ""
    message = f": {one_line(rank.error.message)}" if rank.error else ""
    return Verdict(
        cause="oom",
        exit_code=code_of(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} ran out of memory, an allocation{size} failed {step_of(rank)}{message}",
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
        rank = by_rank.get(end.rank)
        if end.exit_code >= 0 or _shot(evidence, end, rank):
            continue
        # The agent ends the others with SIGTERM: only the one it saw first can have been ended from outside so.
        if end.exit_code == -signal.SIGTERM and not (end.first and evidence.launcher_signal is None):
            continue
        # A rank that reported its failure and was then shot did not die of the shot; one that waits has no record.
        if rank is not None and rank.status in ("oom", "exception", "exit"):
            continue
        # gloo's and NCCL's threads abort a process whose collective has failed.
        if rank is not None and rank.status == "peer_failure" and end.exit_code == -signal.SIGABRT:
            continue
        if end.exit_code == -signal.SIGKILL and _others_failed(evidence, end):
            continue
        return _killed(evidence, end, rank)
    return None


def _shot(evidence: Evidence, end: RankExit, rank: RankRecord | None) -> bool:
    """Whether the supervisor itself killed it; a launch of one process does not tell the pid."""
    return end.pid in evidence.killed or (end.pid == 0 and rank is not None and rank.pid in evidence.killed)


def _others_failed(evidence: Evidence, end: RankExit) -> bool:
    """Whether another rank reported a failure of its own: the agent then kills those that ignore SIGTERM."""
    return not end.first and any(
        rank.status in ("oom", "exception", "exit") for rank in evidence.ranks if rank.rank != end.rank
    )


def _killed(evidence: Evidence, end: RankExit, rank: RankRecord | None) -> Verdict:
    number = -end.exit_code
    name = signal_name(number)
    step = f" {step_of(rank)}" if rank is not None else ""
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
    what = f"{error.type}: {one_line(error.message)}" if error else "an exception"
    where = f" at {error.file}:{error.line}" if error and error.file else ""
    return Verdict(
        cause="exception",
        exit_code=code_of(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} raised {what}{where} {step_of(rank)}",
    )


def _exit(evidence: Evidence) -> Verdict | None:
    rank = _earliest([rank for rank in evidence.ranks if rank.exit_code != 0], "exit")
    if rank is not None:
        return Verdict(
            cause="exit",
            exit_code=code_of(rank),
            culprit=rank.rank,
            explanation=f"rank {rank.rank} ended itself with exit code {code_of(rank)} {step_of(rank)}",
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
    name = evidence.launcher_signal or (signal_name(-code) if code < 0 else None)
    if name is None:
        return None
    if evidence.launcher_shot:
        return _shot_launcher(evidence)
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


def _shot_launcher(evidence: Evidence) -> Verdict:
    """Our own shot says nothing of why: some rank went, and nobody lived to say how."""
    gone = [rank for rank in evidence.ranks if rank.rank in evidence.gone]
    who = f"rank {gone[0].rank} was gone {step_of(gone[0])}, how is not known" if gone else "how is not known"
    return Verdict(
        cause="signal" if gone else "launcher",
        exit_code=LAUNCHER_FAILED,
        culprit=gone[0].rank if gone else None,
        explanation=f"{who}; the others did not end, and plan killed them and their launcher",
    )


def _rest(evidence: Evidence) -> Verdict:
    failed = _earliest(evidence.ranks, "peer_failure", "interrupted")
    if failed is not None:
        message = f": {one_line(failed.error.message)}" if failed.error else ""
        return Verdict(
            cause="signal" if failed.status == "interrupted" else "exception",
            exit_code=code_of(failed),
            culprit=None,
            explanation=f"rank {failed.rank} lost its peers {step_of(failed)}, {_who(evidence)}{message}"
            if failed.status == "peer_failure"
            else f"rank {failed.rank} was told to end from outside {step_of(failed)}",
        )
    error = f": {one_line(evidence.launcher_error)}" if evidence.launcher_error else ""
    if not evidence.ranks:
        explanation = f"the launcher ended with {evidence.launcher_code} before any rank ran the script{error}"
    else:
        explanation = f"the launcher ended with {evidence.launcher_code}, no rank reported a failure{error}"
    return Verdict(cause="launcher", exit_code=LAUNCHER_FAILED, explanation=explanation)


def _who(evidence: Evidence) -> str:
    if evidence.hosts > 1:
        return "one on another host failed first: the run there says why"
    return "which of them failed first is not known"
