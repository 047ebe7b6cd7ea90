"""Which layouts are not traced: those whose states alone do not fit, and those that share out more than is needed, or
have more stages on each rank than can gain anything."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.context.rules import LONG
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.search.ranking.rules import LONGER, Ranking, standing
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.training import Workload

_HELD, _SHARED = 6, 12
"""Bytes of a parameter in the buffers of a rank, and in the states that data parallel ranks share out."""
_LEAST_HELD, _LEAST_SHARED = 4, 4
"""The same with everything in its smallest type."""


def hopeless(
    evaluator: Evaluator,
    family: Family,
    ranking: Ranking,
    plans: Sequence[StepJudgement],
    failed: Sequence[StepJudgement],
) -> str | None:
    """Why a layout is not looked at; None where it is, and always where every degree was given. `failed`: layouts whose
    smallest micro batch did not fit."""
    return uncalled_for(evaluator, family, plans) or beaten(evaluator, family, ranking, plans, failed)


def uncalled_for(evaluator: Evaluator, family: Family, plans: Sequence[StepJudgement]) -> str | None:
    """By rule: what shares out or computes again more than it has to, though it might come first."""
    layout = family.layout
    assert layout is not None
    shares = _shares_tokens(evaluator.workload, layout, plans)
    return shares or (None if _all_asked(evaluator.workload) else _needless(layout, plans))


def beaten(
    evaluator: Evaluator,
    family: Family,
    ranking: Ranking,
    plans: Sequence[StepJudgement],
    failed: Sequence[StepJudgement],
) -> str | None:
    """By bounds: what does not fit, or cannot come first."""
    workload, layout = evaluator.workload, family.layout
    assert layout is not None
    stages = _interleaved(family, ranking, plans) if _adds_stages(workload, layout) else None
    if stages is not None or _all_asked(workload):
        return stages
    again = _again(layout, ranking, plans) if workload.checkpointing is None else None
    return _crowded(evaluator, layout) or again or _keeps(evaluator, family, failed)


def _all_asked(workload: Workload) -> bool:
    """Whether every degree was given."""
    return None not in (workload.tensor_parallel, workload.pipeline_parallel, workload.expert_parallel)


def _again(layout: Layout, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
    """Of a layout that computes every layer once more: at least four thirds of what the least that fits computes, whose
    products may be a tie's worth slower than its own; with as many tensor parallel ranks, of all but the wait for other
    stages, since what they send one another is sent once more too."""
    plain = [
        plan
        for plan in plans
        if standing(plan) == 0 and plan.family.layout is not None and plan.family.layout.recompute == "none"
    ]
    if layout.recompute != "full" or not plain:
        return None
    if not ranking.beyond(plans, seconds=again_at_least(layout, ranking, plain), parts=plain[0].moving_parts):
        return None
    return f"computes every layer once more, and {plain[0].title} fits without: --checkpointing asks for it"


def again_at_least(layout: Layout, ranking: Ranking, plain: Sequence[StepJudgement]) -> float:
    """Seconds of a sample of a layout that computes every layer once more, from those that fit and do not.

    A margin, no proof: larger micro batches than fit without may be faster by more than a tie. Brute force of small
    spaces holds it (tests/trace/test_megatron_by_force.py).
    """
    computed = min(ranking.expected(one) * _computed(one) for one in plain)
    alike = [ranking.expected(one) * (1 - _waits(one)) for one in plain if _tensor(one) == layout.tensor]
    return max(computed, min(alike, default=0.0)) * 4 / 3 / LONGER


def _computed(plan: StepJudgement) -> float:
    """Share of a step in which the slowest rank computes."""
    return min(1.0, (plan.time.forward_seconds + plan.time.backward_seconds) / plan.time.step_seconds)


def _waits(plan: StepJudgement) -> float:
    return 0.0 if plan.piped is None else plan.piped.bubble


def _tensor(plan: StepJudgement) -> int:
    return 1 if plan.family.layout is None else plan.family.layout.tensor


def _keeps(evaluator: Evaluator, family: Family, failed: Sequence[StepJudgement]) -> str | None:
    """Of a layout with more pipeline ranks than one whose first rank's activations alone did not fit: that many more
    micro batches stand on the first rank, of that much fewer layers each."""
    layout = family.layout
    assert layout is not None
    for other in failed:
        shorter = other.family.layout
        if shorter is None or other.piped is None or shorter.pipeline >= layout.pipeline:
            continue
        if _alike(other.family, replace(family, layout=replace(layout, pipeline=shorter.pipeline))):
            kept = other.piped.stages[0].at_peak.activations
            if kept > evaluator.capacity_bytes:
                return f"keeps as many activations as {other.title}, {format_gib(kept)} GiB on the first rank"
    return None


def _adds_stages(workload: Workload, layout: Layout) -> bool:
    return layout.virtual > 1 and workload.virtual_stages is None and workload.schedule is None


def _interleaved(family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
    """Of several stages on each rank: they keep more than one does, and spare no more than the wait for one another."""
    alone = next((plan for plan in plans if standing(plan) == 0 and _alike(plan.family, family)), None)
    if alone is None or alone.piped is None:
        return "keeps more than one stage on each rank, which does not fit: --vpp asks for it"
    seconds = ranking.expected(alone) * (1 - alone.piped.bubble) / LONGER
    if not ranking.beyond(plans, seconds=seconds, parts=alone.moving_parts):
        return None
    return f"with one stage on each rank {alone.piped.bubble:.0%} of the step is waited for: --vpp asks for it"


def _alike(family: Family, other: Family) -> bool:
    """Whether both are the same but for stages on each rank, of which the first has one."""
    if family.layout is None or other.layout is None or family.layout.virtual > 1:
        return False
    ours, theirs = (
        replace(one, virtual=1, first_layers=None, last_layers=None) for one in (family.layout, other.layout)
    )
    return ours == theirs


def _shares_tokens(workload: Workload, layout: Layout, plans: Sequence[StepJudgement]) -> str | None:
    """Of samples that nobody asked to share out."""
    unasked = layout.context > 1 and workload.context_parallel is None and workload.seq_len < LONG
    if not unasked or not any(standing(plan) == 0 for plan in plans):
        return None
    return f"samples of fewer than {LONG:,} tokens are shared out where nothing else fits: --cp asks for it"


def _crowded(evaluator: Evaluator, layout: Layout) -> str | None:
    """Of a layout whose states alone do not fit: what shares most is judged, to say why."""
    world = evaluator.cluster.world_size
    least = _least(evaluator, layout, world)
    if least > evaluator.capacity_bytes and layout.copy_ranks < world:
        return f"needs at least {format_gib(least)} GiB, has {format_gib(evaluator.capacity_bytes)}"
    return None


def _needless(layout: Layout, plans: Sequence[StepJudgement]) -> str | None:
    """Of a layout that shares out more, or computes more again, than one that fits."""
    for plan in plans:
        smaller = plan.family.layout
        if smaller is None or standing(plan) != 0 or smaller == layout:
            continue
        if layout.recompute != "none" and replace(layout, recompute="none") == smaller:
            return "fits without recomputation: --checkpointing asks for it"
        within = smaller.tensor <= layout.tensor and smaller.pipeline <= layout.pipeline
        if within and 2 * smaller.copy_ranks < layout.copy_ranks and smaller.expert >= layout.expert:
            return (
                f"a copy is shared by more ranks than it has to be: {plan.title} fits;"
                f" --tp {layout.tensor} --pp {layout.pipeline} asks for it"
            )
    return None


def _least(evaluator: Evaluator, layout: Layout, world: int) -> int:
    """Bytes of the average rank's states: the fullest one holds as much or more."""
    plain = not any(key.startswith("megatron.") for key, _ in evaluator.workload.settings)
    held, shared = (_HELD, _SHARED) if plain else (_LEAST_HELD, _LEAST_SHARED)
    parameters = sum(parameter.numel for parameter in evaluator.provider.spec().parameters)
    # Experts may be shared out further than the rest: as if everything were an expert where there are some.
    ranks = layout.pipeline * max(layout.tensor, layout.expert * layout.expert_tensor)
    return parameters * held // ranks + parameters * shared // world
