"""Whether an attempt ended because a rank could not write for want of room: pure."""

from gpu_plan.executor.supervise.causes.evidence import Evidence
from gpu_plan.executor.supervise.causes.verdict import Verdict, code_of, one_line, step_of

_WRITERS = ("PytorchStreamWriter", "inline_container", "unexpected pos", "file write failed")
"""In what torch raises where a write failed, which does not say why (caffe2/serialize/inline_container.cc)."""


def judge_full_disk(evidence: Evidence) -> Verdict | None:
    """A rank that could not write: it says so itself, or torch's writer failed and a disk is full."""
    raised = [rank for rank in evidence.ranks if rank.status == "exception" and rank.error is not None]
    said = [rank for rank in raised if rank.error and rank.error.full_disk is not None]
    hidden = [rank for rank in raised if rank.error and any(text in rank.error.message for text in _WRITERS)]
    found = said or (hidden if evidence.full_disks else [])
    rank = min(found, key=lambda each: (each.updated, each.rank), default=None)
    if rank is None or rank.error is None:
        return None
    what = rank.error.full_disk or "a file"
    error = f"{rank.error.type}: {one_line(rank.error.message, 120)}"
    disks = f"; {'; '.join(evidence.full_disks)}" if evidence.full_disks else ""
    return Verdict(
        cause="disk_full",
        exit_code=code_of(rank),
        culprit=rank.rank,
        explanation=f"rank {rank.rank} could not write {what}, its disk is full, {step_of(rank)} ({error}){disks}",
    )
