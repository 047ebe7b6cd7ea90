"""Whom a hung run waits for: its peers wait inside a collective, and are not the cause. Pure."""

import signal
from collections.abc import Sequence

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.supervise.causes.departure import departed, departure_words
from gpu_plan.executor.supervise.causes.evidence import Evidence
from gpu_plan.executor.supervise.causes.verdict import Verdict


def judge_hang(evidence: Evidence) -> Verdict:
    """The verdict on an attempt in which nothing moved for too long."""
    running = [rank for rank in evidence.ranks if rank.status in ("starting", "running")]
    if not running and len(evidence.ranks) >= evidence.world_size and all(r.status == "done" for r in evidence.ranks):
        return Verdict(
            cause="success", exit_code=0, explanation="all ranks done; their processes did not end and were killed"
        )
    steps = f"after step {_last(running)}" if any(rank.steps for rank in running) else "before the first step"
    culprit, who = _awaited(evidence, running)
    where = f"; stacks are in {evidence.stacks}" if evidence.stacks else ""
    return Verdict(
        cause="hang",
        exit_code=128 + signal.SIGKILL,
        culprit=culprit,
        explanation=f"no step ended for {evidence.hung_seconds:.0f} s {steps}{f'; {who}' if who else ''}; all ranks"
        f" were killed{where}",
    )


def _awaited(evidence: Evidence, running: Sequence[RankRecord]) -> tuple[int | None, str]:
    """Who holds the others up, and in words why; None where that is not known."""
    if evidence.stopped:
        rank = min(evidence.stopped)
        more = f", and so were {len(evidence.stopped) - 1} more" if len(evidence.stopped) > 1 else ""
        return rank, f"rank {rank} had been stopped by a signal (SIGSTOP; {evidence.stopped[rank]}){more}"
    places = {place.rank: place for place in evidence.places}
    left = departed(evidence)
    if left and all(places[rank.rank].waits for rank in running if rank.rank in places and rank not in left):
        return left[0].rank, f"{departure_words(left[0])}, and its peers waited for it"
    apart = [place for place in evidence.places if not place.waits]
    ahead = max((rank.summary.steps for rank in running), default=0)
    behind = min(running, key=lambda rank: (rank.summary.steps, rank.updated), default=None)
    culprit = behind.rank if behind is not None and behind.summary.steps < ahead else None
    if len(apart) == 1 < len(evidence.places):
        culprit = apart[0].rank  # the others wait inside torch for this one
    stood = (f"rank {place.rank} stood at {place.where}" for place in (apart or evidence.places)[:2])
    return culprit, "; ".join(stood)


def _last(ranks: Sequence[RankRecord]) -> int:
    return max(rank.steps[-1].step for rank in ranks if rank.steps)
