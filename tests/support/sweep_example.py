"""A hand-made sweep with every verdict."""

from dataclasses import replace

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.sweep.document import SweepAxis, SweepDocument, SweepPoint
from tests.support.plan_example import llama_on_8xh100


def _tight(plan: Candidate) -> Candidate:
    assert plan.memory is not None
    figures = replace(plan.memory, capacity_bytes=plan.memory.device_used_bytes + 1)
    return replace(plan, verdict="tight", memory=figures)


def grid() -> SweepDocument:
    """Sequence length by micro batch: fits, fits, tight, no, fits, refused."""
    document = llama_on_8xh100()
    best, second, third = document.plans[:3]
    lost = next(one for one in document.rejected if one.memory is not None)
    common = {"model": document.model.id, "gpus": 8}
    points = (
        SweepPoint(values=("2k", "1"), command="plan a", verdict="fits", plan=best, **common),
        SweepPoint(values=("2k", "4"), command="plan b", verdict="fits", plan=second, **common),
        SweepPoint(values=("2k", "8"), command="plan c", verdict="tight", plan=_tight(third), **common),
        SweepPoint(values=("32k", "1"), command="plan d", verdict="no", plan=lost, reason=lost.reason, **common),
        SweepPoint(values=("32k", "4"), command="plan e", verdict="fits", plan=second, **common),
        SweepPoint(values=("32k", "8"), command="plan f", verdict="refused", reason="8 and 32k do not go together"),
    )
    return SweepDocument(
        command="plan meta-llama/Llama-3.1-8B --gpus 8xH100 --sweep seq-len=2k,32k --sweep micro-batch=1,4,8",
        created_with=document.created_with,
        axes=(SweepAxis(name="seq-len", values=("2k", "32k")), SweepAxis(name="micro-batch", values=("1", "4", "8"))),
        points=points,
        warnings=("a warning <b>",),
    )
