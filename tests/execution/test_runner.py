"""What ranks record of jobs that really run. The few launches that stand for all; the others are slow ones."""

import pytest

from gpu_plan.executor.deviations import deviations
from tests.execution.launches import directly, launch, torchrun
from tests.support.tiny_plan import PARAMETERS, tiny_plan

OPTIONS = {"expected_parameters": PARAMETERS}


def follows(done, *, stack="accelerate", accumulation=1, micro_batch=4, steps=3):
    """Every rank counted what the job itself knows, and nothing else was seen."""
    assert done.code == 0, done.output
    for rank in done.ranks:
        truth, actual = done.truth(rank.rank), rank.actual
        assert (rank.status, rank.exit_code, rank.error) == ("done", 0, None)
        assert [step.step for step in rank.steps] == list(range(1, steps + 1))
        assert {step.micro_batches for step in rank.steps} == {accumulation}
        assert {step.samples for step in rank.steps} == {accumulation * micro_batch}
        assert {step.tokens for step in rank.steps} == {accumulation * micro_batch * 16}
        assert rank.summary.tokens == steps * accumulation * micro_batch * 16
        assert actual.parameters == actual.trainable_parameters == truth["parameters"] == PARAMETERS
        assert actual.parameter_dtypes == {"float32": PARAMETERS}
        assert (actual.micro_batch_size, actual.sequence_length) == (micro_batch, 16)
        assert (actual.gradient_accumulation_steps, actual.stack) == (accumulation, stack)
        assert all(set(step.phases) == {"forward", "backward", "optimizer"} for step in rank.steps)
        assert all(step.resident_bytes == max(step.phases.values()) > 0 for step in rank.steps)
        assert rank.base_resident_bytes < 2**26  # before the script nothing large is there
        assert not [note for note in rank.notes if note.startswith("not observed")]
    return done


def same_losses(done, *, rank=0, tolerance=1e-5):
    found = [step.loss for step in done.ranks[rank].steps]
    assert found == pytest.approx(done.truth(rank)["losses"], rel=tolerance)


@pytest.mark.slow
def test_accelerate_loop_under_ddp(tmp_path):
    words = ("--tracker", "tensorboard", "--evaluate")
    done = launch(tmp_path, "accelerate_loop.py", *words, strategy="ddp", accumulation=2, options=OPTIONS)
    assert len(follows(done, accumulation=2).ranks) == 2
    same_losses(done, rank=0)
    same_losses(done, rank=1)
    assert deviations(tiny_plan("ddp", accumulation=2), done.ranks) == ()
    assert {rank.actual.backend for rank in done.ranks} == {"gloo"}
    scalars = scalars_of(tmp_path / "job")
    assert [step for step, _ in scalars["train_loss"]] == [10, 20, 30]
    assert [step for step, _ in scalars["plan/loss"]] == [1, 2, 3]
    assert [value for _, value in scalars["plan/loss"]] == pytest.approx(done.truth()["losses"], rel=1e-5)
    assert {"plan/step_seconds", "plan/tokens_per_second", "plan/resident_bytes"} <= set(scalars)


def scalars_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.slow
def test_accelerate_loop_under_fsdp2_with_the_planned_checkpointing(tmp_path):
    options = OPTIONS | {"checkpointing": "full"}
    done = launch(tmp_path, "accelerate_loop.py", strategy="fsdp", accumulation=2, options=options)
    same_losses(follows(done, accumulation=2))
    assert deviations(tiny_plan("fsdp", accumulation=2, zero_stage=3, checkpointing="full"), done.ranks) == ()
    assert "FSDPLlamaDecoderLayer" in done.ranks[0].actual.wrapped_classes


@pytest.mark.slow
def test_two_independent_jobs_are_not_believed(tmp_path):
    # Every process ends well and the launcher's exit code is 0; without ACCELERATE_USE_CPU none joins the other.
    done = launch(tmp_path, "accelerate_loop.py", environment={"ACCELERATE_USE_CPU": None})
    assert done.code == 0, done.output
    lines = deviations(tiny_plan("ddp"), done.ranks)
    assert lines[0].startswith("2 processes ran as independent jobs")
    assert any(line.startswith("the strategy was single, planned is ddp") for line in lines)


def test_a_rank_out_of_memory_and_its_peer(tmp_path):
    done = torchrun(tmp_path, "failing.py", "memory", "1")
    peer, culprit = done.ranks
    assert done.code != 0
    assert (culprit.status, culprit.error.requested_bytes, culprit.summary.steps) == ("oom", 4 * 2**28, 2)
    assert culprit.error.file.endswith("failing.py")
    # The launcher may have ended the peer before it noticed.
    assert peer.status in ("peer_failure", "interrupted")
    assert peer.summary.steps == 2


@pytest.mark.slow
def test_odd_loops_are_counted_right(tmp_path):
    kinds = ("adversarial", "overflow", "closure", "reentrant", "copies")
    done = {}
    for kind in kinds:
        (tmp_path / kind).mkdir()
        done[kind] = directly(tmp_path / kind, "odd_loops.py", kind)
        assert done[kind].code == 0, done[kind].output
    rank = {kind: done[kind].ranks[0] for kind in kinds}
    assert {kind: rank[kind].summary.steps for kind in kinds} == {kind: done[kind].truth()["steps"] for kind in kinds}
    assert [step.micro_batches for step in rank["adversarial"].steps] == [1, 2, 1, 2]
    same_losses(done["overflow"])
    assert any("2 optimizer steps were skipped" in note for note in rank["overflow"].notes)
    assert sum(step.micro_batches for step in rank["closure"].steps) == done["closure"].truth()["passes"]
    assert rank["reentrant"].actual.checkpointing is True
    assert {step.micro_batches for step in rank["reentrant"].steps} == {1}
    # Evaluations on larger batches, copies and loaded twins do not count; another model's training does.
    assert [step.samples for step in rank["copies"].steps][:3] == [2, 2, 2]
    assert [step.samples for step in rank["copies"].steps][4:] == [5, 5]
