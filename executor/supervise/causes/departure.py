"""Ranks that leave with exit code 0 while their peers go on: the agent calls that well, and blames the peers. Pure."""

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.supervise.causes.evidence import Evidence
from gpu_plan.executor.supervise.causes.verdict import Verdict, one_line, step_of

_NODE_LOST = 125
"""As where the launcher itself failed."""


def departed(evidence: Evidence) -> list[RankRecord]:
    """Ranks that ended with exit code 0, the earliest first: by their own word, or gone without one.

    torch's agent reports every rank that had failed when it saw the first; those that it then ends itself say that
    they were interrupted. A rank that says it runs and is not reported has left with 0.
    """
    failed = {end.rank for end in evidence.exits if end.exit_code != 0}
    reported = bool(evidence.exits) and not evidence.launcher_shot
    found = [
        rank
        for rank in evidence.ranks
        if rank.rank not in failed
        and rank.pid not in evidence.killed
        and (
            rank.status == "done"
            or (rank.status in ("starting", "running") and (reported or rank.rank in evidence.gone))
        )
    ]
    return sorted(found, key=lambda rank: (rank.summary.steps, rank.updated, rank.rank))


def departure_words(rank: RankRecord) -> str:
    """`rank 1 left with exit code 0 after step 2 (SystemExit at train.py:88)`."""
    if rank.status == "done":
        how = rank.left or "its script had ended"
    else:
        how = "in the midst of its script, without an exception: os._exit(0)?"
    return f"rank {rank.rank} left with exit code 0 {step_of(rank)} ({how})"


def judge_lost_node(evidence: Evidence) -> Verdict | None:
    """A node whose launcher left no word, and whose ranks still say that they run: all of it went at once."""
    there = [rank for rank in evidence.ranks if rank.rank in evidence.silent]
    if not there or any(rank.status not in ("starting", "running", "peer_failure", "interrupted") for rank in there):
        return None
    gone = [rank for rank in there if rank.status in ("starting", "running")]
    if not gone or evidence.interrupted is not None:
        return None
    first = min(gone, key=lambda rank: (rank.updated, rank.rank))
    number = evidence.silent[first.rank]
    return Verdict(
        cause="node_lost",
        exit_code=_NODE_LOST,
        culprit=first.rank,
        explanation=f"node {number} ({first.host}) was lost: its launcher left no word; rank {first.rank} was last seen"
        f" {step_of(first)}",
    )


def judge_departure(evidence: Evidence) -> Verdict | None:
    """Where nobody failed but for the loss of a peer, a rank that left before is the cause."""
    left = departed(evidence)
    failed = [rank for rank in evidence.ranks if rank.status == "peer_failure"]
    if not left or not failed:
        return None
    first = min(failed, key=lambda rank: (rank.updated, rank.rank))
    message = f": {one_line(first.error.message, 160)}" if first.error else ""
    return Verdict(
        cause="exit",
        exit_code=1,
        culprit=left[0].rank,
        explanation=f"{departure_words(left[0])} while its peers went on; rank {first.rank} then lost it"
        f" {step_of(first)}{message}",
    )
