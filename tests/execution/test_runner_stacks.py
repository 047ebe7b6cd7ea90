"""Every loop under every strategy that CPU ranks can run, as the ranks recorded it."""

import pytest

from gpu_plan.executor.deviations import deviations
from tests.execution.launches import directly, launch, torchrun
from tests.execution.test_runner import OPTIONS, follows, same_losses
from tests.support.tiny_plan import tiny_plan

pytestmark = pytest.mark.slow

TRAINER = (
    *("--output_dir", "out", "--max_steps", "3", "--per_device_train_batch_size", "4"),
    *("--gradient_accumulation_steps", "2", "--logging_steps", "1", "--save_strategy", "no"),
    *("--learning_rate", "1e-3", "--optim", "adamw_torch", "--bf16", "false"),
)
STAGES = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3, "fsdp1-flat": 3, "fsdp-checkpointed": 3}


@pytest.mark.parametrize("strategy", ["single", "fsdp1", "fsdp1-flat", "fsdp-checkpointed", "zero1", "zero2", "zero3"])
def test_accelerate_loop(tmp_path, strategy):
    ranks = 1 if strategy == "single" else 2
    done = launch(tmp_path, "accelerate_loop.py", strategy=strategy, ranks=ranks, accumulation=2, options=OPTIONS)
    assert len(follows(done, accumulation=2).ranks) == ranks
    if strategy != "fsdp1-flat":  # its loop sums flat gradients in another order
        same_losses(done)
    name, _, variant = strategy.partition("-")
    plan = tiny_plan(
        name,
        ranks=ranks,
        accumulation=2,
        zero_stage=STAGES.get(strategy, 0),
        checkpointing="full" if variant == "checkpointed" else "none",
    )
    assert deviations(plan, done.ranks) == ()


def test_hsdp_on_four_ranks(tmp_path):
    done = follows(launch(tmp_path, "accelerate_loop.py", strategy="hsdp", ranks=4, options=OPTIONS))
    assert deviations(tiny_plan("hsdp", ranks=4, zero_stage=3), done.ranks) == ()


@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
def test_bf16(tmp_path, strategy):
    done = launch(tmp_path, "accelerate_loop.py", strategy=strategy, precision="bf16", options=OPTIONS)
    assert done.code == 0, done.output
    plan = tiny_plan(strategy, precision="bf16-mixed", zero_stage=STAGES.get(strategy, 0))
    assert deviations(plan, done.ranks) == ()


def test_plain_loops(tmp_path):
    for name, words in (("ddp", ()), ("fsdp", ("--shard",))):
        folder = tmp_path / name
        folder.mkdir()
        done = torchrun(folder, "plain_loop.py", "--accumulation", "2", *words, options=OPTIONS)
        same_losses(follows(done, stack="plain", accumulation=2), rank=1)
        stage = STAGES.get(name, 0)
        assert deviations(tiny_plan(name, accumulation=2, optimizer="sgd", zero_stage=stage), done.ranks) == ()
        assert done.ranks[0].actual.distributed_type == name.upper()


def test_a_plain_loop_that_autocasts(tmp_path):
    done = directly(tmp_path, "plain_loop.py", "--autocast", options=OPTIONS)
    same_losses(follows(done, stack="plain"))
    assert done.ranks[0].actual.mixed_precision == "bf16"


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("single", ("--use_cpu", "--report_to", "tensorboard")),
        ("single", ("--sft", "--use_cpu", "--max_length", "16", "--gradient_checkpointing", "false")),
        ("ddp", ("--use_cpu",)),
        ("fsdp", ()),
        ("zero3", ()),
    ],
)
def test_trainer(tmp_path, strategy, words):
    ranks = 1 if strategy == "single" else 2
    report = () if "--report_to" in words else ("--report_to", "none")
    accumulation = 2 if strategy.startswith("zero") else 1  # the Trainer accumulates itself otherwise
    done = launch(
        tmp_path, "trainer.py", *words, *TRAINER, *report,
        strategy=strategy, ranks=ranks, accumulation=accumulation, options=OPTIONS,
    )  # fmt: skip
    follows(done, stack="trainer", accumulation=2)
    plan = tiny_plan(strategy, ranks=ranks, accumulation=2, zero_stage=STAGES.get(strategy, 0))
    assert deviations(plan, done.ranks) == ()
    if strategy == "single":
        same_losses(done)
    if not report:
        (events,) = [path for path in tmp_path.rglob("events.out*")]
        assert b"plan/step_seconds" in events.read_bytes()


@pytest.mark.parametrize("devices", [1, 2])
def test_lightning(tmp_path, devices):
    words = ("--accumulation", "2", "--devices", str(devices))
    done = torchrun(tmp_path, "lightning_job.py", *words, ranks=devices, options=OPTIONS)
    follows(done, stack="lightning", accumulation=2)
    name = "ddp" if devices > 1 else "single"
    assert deviations(tiny_plan(name, ranks=devices, accumulation=2), done.ranks) == ()
    losses = done.truth()["losses"]
    assert [step.loss for step in done.ranks[0].steps] == pytest.approx(
        [(losses[at] + losses[at + 1]) / 2 for at in (0, 2, 4)], rel=1e-5
    )


def test_a_compiled_model(tmp_path):
    done = directly(tmp_path, "accelerate_loop.py", "--compile", "--checkpointing", options=OPTIONS)
    same_losses(follows(done))
    assert done.ranks[0].actual.wrapped_classes[0] == "OptimizedModule"
    assert done.ranks[0].actual.checkpointing is True


def test_the_planned_micro_batch_reaches_an_untouched_script(tmp_path):
    done = directly(
        tmp_path,
        "accelerate_loop.py",
        options=OPTIONS | {"rebatch": True},
        environment={"GPU_PLAN_MICRO_BATCH_SIZE": "2"},
    )
    follows(done, micro_batch=2)
    assert "the DataLoader's batch size was changed from 4 to 2, as planned" in done.ranks[0].notes
