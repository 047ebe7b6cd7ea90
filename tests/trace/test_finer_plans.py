"""Settings that the search tries by itself: weights that stay gathered, one layer in several checkpointed."""

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.search.training import finer
from gpu_plan.planner.search.training import task as training_task
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.finer import EXPANDS, grown
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision, Stack, Workload

MODEL = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
CLUSTER = parse_cluster("2xH100")
JOB = Workload(
    seq_len=128,
    precision=Precision("bf16-mixed"),
    optimizer=Optimizer("adamw"),
    attention=Attention.SDPA,
    stack=Stack.ACCELERATE,
    strategy="fsdp",
    offload="none",
)


@pytest.fixture(scope="module")
def provider() -> TraceProvider:
    return TraceProvider(source=resolve(MODEL), device=device_kind(CLUSTER.gpu), attention="sdpa")


def task_of(provider: TraceProvider, workload: Workload) -> TrainingTask:
    return TrainingTask(Evaluator(provider=provider, workload=workload, cluster=CLUSTER, speed=RooflineModel()))


def settings_of(found: Found[StepJudgement]) -> set[tuple[tuple[str, str], ...]]:
    return {plan.family.settings for plan in found.plans}


def test_weights_that_stay_gathered_are_tried_unless_it_was_said(provider: TraceProvider) -> None:
    kept = (("fsdp.reshard_after_forward", "false"),)
    found = search(task_of(provider, JOB))
    assert kept in settings_of(found)
    one, other = (
        next(plan for plan in found.plans if plan.family.settings == settings and plan.family.checkpointing == "none")
        for settings in ((), kept)
    )
    task = task_of(provider, JOB)
    assert task.choice(one).reshards
    assert not task.choice(other).reshards
    assert task.details(other, lost=False, best=False).chosen == dict(kept)
    assert "--fsdp_reshard_after_forward false" in str(task.details(other, lost=False, best=False).command)
    said = replace(JOB, settings=(("fsdp.reshard_after_forward", "true"),))
    assert settings_of(search(task_of(provider, said))) == {()}


def test_fewer_layers_are_checkpointed_where_a_sample_may_take_less(provider: TraceProvider) -> None:
    """On a device that holds one sample whole, and eight with all layers checkpointed."""
    job = replace(JOB, global_batch=8 * CLUSTER.world_size)
    wide = task_of(provider, job)
    alone = wide.evaluator
    full = next(family for family in wide.families() if family.checkpointing is Checkpointing.FULL)
    eight = alone.simulate(alone.judge(full, wide.cuts_of(full)[-1]))
    assert eight.batch.micro_batch == 8
    reserve = alone.capacity_bytes - int(eight.high_bytes * 1.1)
    task = task_of(provider, replace(job, settings=(("memory.reserve", str(reserve)),)))
    families = list(task.finer(Ranking(), [eight]))
    assert (("checkpoint.every", "2"),) in [family.settings for family in families]
    judged = [
        task.evaluator.judge(replace(full, settings=settings), eight.batch)
        for settings in ((), (("checkpoint.every", "2"),), (("checkpoint.every", "4"),))
    ]
    peaks = [one.profile.peak_allocated_bytes for one in judged]
    times = [one.seconds[0] for one in judged]
    assert peaks == sorted(peaks)
    assert times == sorted(times, reverse=True)
    assert [task.choice(one).checkpoint_every for one in judged] == [1, 2, 4]
    assert judged[1].full_title.endswith("full checkpointing of one layer in 2")


def test_a_class_that_checkpoints_all_layers_or_none_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers before 5.9 knows no distance: what nobody asked for is left out, what was asked for is one line."""
    before = PreTrainedModel._set_gradient_checkpointing

    def older(self, enable: bool = True, gradient_checkpointing_func=None, **_) -> None:  # type: ignore[no-untyped-def]
        before(self, enable, gradient_checkpointing_func)

    monkeypatch.setattr(PreTrainedModel, "_set_gradient_checkpointing", older)
    monkeypatch.setattr(finer, "too_slow", lambda *_: None)
    monkeypatch.setattr(training_task, "too_slow", lambda *_: None)
    old = TraceProvider(source=resolve(MODEL), device=device_kind(CLUSTER.gpu), attention="sdpa", use_cache=False)
    found = search(task_of(old, replace(JOB, global_batch=8 * CLUSTER.world_size)))
    assert found.best is not None
    assert any("checkpoints all layers or none" in reason for reason in found.inapplicable)
    said = replace(JOB, checkpointing=Checkpointing.FULL, settings=(("checkpoint.every", "2"),))
    with pytest.raises(UsageError, match="checkpoints all layers or none"):
        search(task_of(old, said))


def test_a_distance_is_not_tried_where_it_was_said_or_gains_nothing(provider: TraceProvider) -> None:
    found = search(task_of(provider, JOB))
    assert all("checkpoint.every" not in dict(settings) for settings in settings_of(found))
    assert any("hardly faster" in reason for reason in found.left_out)
    said = replace(JOB, checkpointing=Checkpointing.FULL)
    assert not any("checkpointing of one layer" in reason for reason in search(task_of(provider, said)).left_out)


def test_what_is_cheap_alone_is_computed_again_where_all_is_in_a_plan_that_fits(provider: TraceProvider) -> None:
    task = task_of(provider, replace(JOB, global_batch=8 * CLUSTER.world_size))
    full = next(family for family in task.families() if family.checkpointing is Checkpointing.FULL)
    plan = task.evaluator.simulate(task.evaluator.judge(full, task.cuts_of(full)[-1]))
    families = list(task.finer(Ranking(), [plan]))
    assert Checkpointing.SELECTIVE in [family.checkpointing for family in families]
    selective = replace(full, checkpointing=Checkpointing.SELECTIVE)
    assert task.evaluator.judge(selective, plan.batch).tuned


def test_segments_grow_where_blocks_alone_keep_a_plan_from_fitting(provider: TraceProvider) -> None:
    """On a device as large as the tensors with a little room: torch's own blocks do not surely fit, segments that grow
    do."""
    job = replace(JOB, micro_batch=8, checkpointing=Checkpointing.NONE)
    wide = task_of(provider, job)
    family = next(iter(wide.families()))
    batch = wide.cuts_of(family)[0]
    plain, grown = (
        wide.evaluator.simulate(wide.evaluator.judge(replace(family, settings=settings), batch))
        for settings in ((), ((EXPANDS, "true"),))
    )
    assert grown.high_bytes < plain.high_bytes
    assert grown.seconds == plain.seconds
    reserve = wide.evaluator.capacity_bytes - (grown.high_bytes + plain.high_bytes) // 2
    settings = (("memory.reserve", str(reserve)),)
    task = task_of(provider, replace(job, settings=settings))
    found = search(task)
    best = found.best
    assert best is not None
    assert best.family.settings == ((EXPANDS, "true"),)
    assert best.title == "FSDP2 with expandable segments"
    assert task.choice(best).expandable_segments
    details = task.details(best, lost=False, best=True)
    assert details.chosen == {EXPANDS: "true"}
    assert str(details.command).startswith("PYTORCH_ALLOC_CONF=expandable_segments:True accelerate launch")
    said = task_of(provider, replace(job, settings=(*settings, (EXPANDS, "false"))))
    assert settings_of(search(said)) == {()}
    roomy = search(task_of(provider, job))
    assert all((EXPANDS, "true") not in plan.family.settings for plan in roomy.plans)


def test_segments_grow_for_a_larger_batch_than_blocks_let_in(provider: TraceProvider) -> None:
    """Mixtral-8x22B on 64 H100: ZeRO-3 took one sample at 72.8 GiB of segments around 47.4 of tensors; now four."""
    job = replace(JOB, checkpointing=Checkpointing.NONE)
    wide = task_of(provider, job)
    family = next(iter(wide.families()))
    cuts = {cut.micro_batch: cut for cut in wide.cuts_of(family)}
    small, plain, larger = (
        wide.evaluator.simulate(wide.evaluator.judge(kind, cuts[size]))
        for kind, size in ((family, 4), (family, 8), (grown(family), 8))
    )
    assert small.high_bytes < larger.high_bytes < plain.high_bytes
    reserve = wide.evaluator.capacity_bytes - (larger.high_bytes + plain.high_bytes) // 2
    task = task_of(provider, replace(job, settings=(("memory.reserve", str(reserve)),)))
    found = search(task)
    assert found.best is not None
    assert found.best.family == grown(family, 8)
    assert found.best.batch.micro_batch == 8
    beside = [plan.batch.micro_batch for plan in found.plans if plan.family == family]
    assert max(beside) < 8
    assert task.cuts_of(grown(family, 8))[0].micro_batch == 8, "what blocks let in is not judged again"
    assert [cut.micro_batch for cut in task.cuts_of(grown(family, 3))][:3] == [3, 4, 8]


def test_segments_grow_for_ranks_that_share_a_model_too(provider: TraceProvider) -> None:
    """Llama-3.1-405B on 128 H100: FSDP2 × TP was tight, and offload stood first."""
    job = replace(JOB, strategy="tp", tensor_parallel=2, micro_batch=64, checkpointing=Checkpointing.NONE)
    wide = task_of(provider, job)
    family = next(iter(wide.families()))
    plain, grown = (
        wide.evaluator.simulate(wide.evaluator.judge(replace(family, settings=settings), wide.cuts_of(family)[0]))
        for settings in ((), ((EXPANDS, "true"),))
    )
    reserve = wide.evaluator.capacity_bytes - (grown.high_bytes + plain.high_bytes) // 2
    best = search(task_of(provider, replace(job, settings=(("memory.reserve", str(reserve)),)))).best
    assert best is not None
    assert best.family.settings == ((EXPANDS, "true"),)
