"""Each way in which a run can differ from its plan is one line; a run that follows it says nothing."""

from dataclasses import replace

import pytest

from gpu_plan.executor.deviations import deviations
from gpu_plan.executor.records.rank import Actual, RankRecord, StepSummary
from tests.support.tiny_plan import PARAMETERS, tiny_plan

FOLLOWED = Actual(
    world_size=2,
    distributed_type="MULTI_GPU",
    strategy="ddp",
    backend="gloo",
    wrapped_classes=("DistributedDataParallel", "LlamaForCausalLM"),
    mixed_precision="no",
    parameter_dtypes={"float32": PARAMETERS},
    parameters=PARAMETERS,
    trainable_parameters=PARAMETERS,
    optimizers=("torch.optim.adamw.AdamW",),
    batch_shapes=((4, 16),),
    micro_batch_size=4,
    sequence_length=16,
    gradient_accumulation_steps=1,
    checkpointing=False,
    stack="accelerate",
)


def record(rank=0, launched=2, **changes):
    return RankRecord(
        run_id="run",
        attempt=1,
        rank=rank,
        local_rank=rank,
        world_size=launched,
        pid=1,
        host="here",
        device="cpu",
        status="done",
        started=0.0,
        updated=1.0,
        actual=replace(FOLLOWED, **changes),
        summary=StepSummary(steps=3),
    )


def both(**changes):
    return [record(0, **changes), record(1, **changes)]


def test_a_run_that_follows_its_plan_has_none():
    assert deviations(tiny_plan(), both()) == ()


def test_nothing_seen_is_nothing_said():
    empty = [replace(record(rank), actual=Actual(), summary=StepSummary()) for rank in (0, 1)]
    assert deviations(tiny_plan(), empty) == ()
    assert deviations(tiny_plan(), []) == ()


CASES = {
    "strategy": ({"strategy": "zero1", "wrapped_classes": ("Llama",)}, "the strategy was zero1, planned is ddp"),
    "parameters": ({"parameters": 5}, "the model has 5 parameters, the planned one 22,688"),
    "trainable": ({"trainable_parameters": 7}, "the model has 7 trainable parameters, the planned one 22,688"),
    "mixed": ({"mixed_precision": "bf16"}, "the precision was bf16-mixed, planned is fp32"),
    "weights": ({"parameter_dtypes": {"bfloat16": 9, "float32": 1}}, "the weights are bfloat16, planned is fp32"),
    "micro batch": ({"micro_batch_size": 8}, "the micro batch was 8, planned is 4"),
    "accumulation": ({"gradient_accumulation_steps": 3}, "3 backward passes made an optimizer step, planned are 1"),
    "longer": ({"batch_shapes": ((4, 16), (4, 32))}, "sequences were up to 32 tokens long, planned is 16"),
    "shorter": ({"sequence_length": 8, "batch_shapes": ((4, 8),)}, "sequences were at most 8 tokens long"),
    "checkpointing": ({"checkpointing": True}, "activation checkpointing was on, planned is none"),
    "fused": (
        {"optimizers": ("torch.optim.adamw.AdamW (fused)",)},
        "the optimizer was torch.optim.adamw.AdamW (fused)",
    ),
    "sgd": ({"optimizers": ("torch.optim.sgd.SGD",)}, "the optimizer was torch.optim.sgd.SGD, planned is adamw"),
    "clipped unasked": ({"clipping_of_engine": 1.0}, "DeepSpeed clipped gradients to norm 1, the script asks for no"),
    "clipped less": (
        {"clipping_of_engine": 1.0, "clipping_asked": 0.5},
        "DeepSpeed clipped gradients to norm 1, the script asks for norm 0.5",
    ),
    "not clipped": (
        {"clipping_of_engine": 0.0, "clipping_asked": 0.5},
        "DeepSpeed did not clip gradients, the script asks for norm 0.5",
    ),
    "replaced": (
        {"optimizers": ("deepspeed.ops.adam.cpu_adam.DeepSpeedCPUAdam",), "optimizers_given": ("SGD",)},
        "DeepSpeed's CPU Adam stepped in place of the script's SGD",
    ),
    "world": ({"world_size": 4}, "the world size was 4, the plan has 2 ranks"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_is_one_line(name):
    changes, line = CASES[name]
    found = deviations(tiny_plan(), both(**changes))
    assert len(found) == 1
    assert found[0].startswith(line)


def test_a_frozen_model_beside_the_trained_one_is_none():
    plan = tiny_plan()
    beside = replace(plan.model, class_name=f"{plan.model.class_name} + Reference", parameters=2 * PARAMETERS)
    assert deviations(replace(plan, model=beside), both()) == ()
    alone = replace(plan.model, parameters=2 * PARAMETERS)
    assert len(deviations(replace(plan, model=alone), both())) == 1
    (line,) = deviations(replace(plan, model=beside), both(trainable_parameters=7))
    assert line.startswith("the model has 7 trainable parameters")


def test_a_scripts_reference_and_the_rows_of_its_pairs_are_none():
    """A captured script: 2 pairs are 4 rows, and of policy and reference a training step calls the policy."""
    plan = tiny_plan()
    samples = plan.plan.strategy.micro_batch_size
    script = {"micro_batch": samples, "rows": 2 * samples, "models": 2, "called_parameters": PARAMETERS}
    both_models = replace(plan.model, parameters=2 * PARAMETERS)
    paired = replace(plan, model=both_models, workload={**plan.workload, "script": script})
    assert deviations(paired, both(micro_batch_size=2 * samples)) == ()
    (line,) = deviations(paired, both(micro_batch_size=samples))
    assert line == f"the micro batch was {samples}, planned is {2 * samples} rows, of {samples} samples"
    (line,) = deviations(paired, both(micro_batch_size=2 * samples, parameters=PARAMETERS + 1))
    assert line.startswith("the model has")


def test_clipping_that_was_asked_for_is_none():
    assert deviations(tiny_plan(), both(clipping_asked=0.5)) == (), "the script clips itself"
    assert deviations(tiny_plan(), both(clipping_asked=0.5, clipping_of_engine=0.5)) == ()
    given = tiny_plan()
    given = replace(given, workload={**given.workload, "settings": {"clip.max_norm": "0.25"}})
    assert deviations(given, both(clipping_asked=0.5, clipping_of_engine=0.25)) == ()
    assert deviations(given, both(clipping_asked=0.5)) == (
        "the script clipped gradients to norm 0.5, planned is norm 0.25",
    )


def test_one_process_instead_of_two():
    (alone, strategy) = deviations(tiny_plan(), [record(launched=1, world_size=1, strategy="single")])
    assert alone.startswith("one process ran alone, the plan has 2 ranks")
    assert strategy.startswith("the strategy was single")


@pytest.mark.parametrize("size", [1, 2])
def test_two_jobs_instead_of_one(size):
    lines = deviations(tiny_plan(), both(world_size=size, strategy="single"))
    assert lines[0].startswith("2 processes ran as independent jobs")


def test_a_line_that_holds_for_one_rank_names_it():
    lines = deviations(tiny_plan(), [record(0), record(1, micro_batch_size=2)])
    assert lines == ("rank 1: the micro batch was 2, planned is 4",)


@pytest.mark.parametrize(
    ("planned", "found", "same"),
    [
        ("adamw", "torch.optim.adamw.AdamW", True),
        ("adamw-fused", "torch.optim.adamw.AdamW (fused)", True),
        ("adamw-fused", "torch.optim.adamw.AdamW", False),
        ("adamw", "bitsandbytes.optim.adamw.AdamW8bit", False),
        ("adamw-8bit", "bitsandbytes.optim.adamw.AdamW8bit", True),
        ("adamw-8bit", "torchao.optim.adam.AdamW8bit", True),
        ("adamw-8bit", "bitsandbytes.optim.adamw.PagedAdamW8bit", False),
        ("paged-adamw-8bit", "bitsandbytes.optim.adamw.PagedAdamW8bit", True),
        ("adamw", "deepspeed.ops.adam.cpu_adam.DeepSpeedCPUAdam", True),
        ("lion-8bit", "bitsandbytes.optim.lion.Lion", True),
        ("lion-8bit", "bitsandbytes.optim.lion.Lion32bit", False),
        ("lion", "bitsandbytes.optim.lion.Lion8bit", False),
        ("sgd-momentum", "torch.optim.sgd.SGD", True),
        ("adafactor", "transformers.optimization.Adafactor", True),
        ("adafactor", "torch.optim.adamw.AdamW", False),
    ],
)
def test_optimizers(planned, found, same):
    lines = deviations(tiny_plan(optimizer=planned), both(optimizers=(found,)))
    assert (lines == ()) is same


def test_pure_bf16_is_told_from_mixed():
    plan = tiny_plan(precision="bf16")
    weights = {"bfloat16": PARAMETERS}
    assert deviations(plan, both(parameter_dtypes=weights)) == ()
    assert deviations(plan, both(mixed_precision="bf16"))[0].startswith("the weights are float32, planned is bf16")
    mixed = tiny_plan(precision="bf16-mixed")
    assert deviations(mixed, both(mixed_precision="bf16")) == ()
    assert deviations(mixed, both(mixed_precision="bf16", parameter_dtypes=weights))[0].startswith("the weights are bf")
    zero = tiny_plan("zero2", precision="bf16-mixed", zero_stage=2)
    assert deviations(zero, both(strategy="zero2", mixed_precision="bf16", parameter_dtypes=weights)) == ()


@pytest.mark.parametrize(
    ("planned", "compiled", "said"),
    [
        ({"compile.backend": "inductor"}, False, "nothing was compiled, planned is torch.compile with the backend"),
        ({"compile.backend": "inductor"}, True, None),
        ({}, True, "the model was compiled, the plan counts its step as written"),
        ({}, False, None),
        ({"compile.backend": "inductor"}, None, None),
    ],
)
def test_compilation(planned, compiled, said):
    plan = tiny_plan()
    plan = replace(plan, workload={**plan.workload, "settings": planned})
    lines = deviations(plan, [record(rank, compiled=compiled) for rank in range(2)])
    assert [line.startswith(said) for line in lines] == ([True] if said else [])
