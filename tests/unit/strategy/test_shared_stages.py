"""Stages that several ranks compute together: what is tried, and what contradicts itself."""

from dataclasses import replace

import pytest

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.search.training.candidates import Family, families
from gpu_plan.planner.search.training.piped.judge import refuses_halves
from gpu_plan.planner.strategy.pipeline.cuts import Pipeline
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing, Workload

SPEC = ModelSpec(
    id="m", class_name="M", config_class=None, model_type="llama", kind="dense", parameters=(), num_parameters=0,
    trainable_parameters=0, max_positions=None, vocab_size=64, hidden_size=8, has_sequence=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpus 8xH100 --tp 2 --pp 2 --strategy ddp", "--tp 2 needs --strategy fsdp"),
        ("--gpus 8xH100 --tp 8 --pp 2", "--tp 8 x --pp 2 does not divide 8 GPUs: their product has to"),
        ("--gpus 8xH100 --tp 2 --pp 2 --ep 2", "--ep 2 together with --pp 2"),
        (
            "--gpus 8xH100 --tp 2 --pp 4 --strategy fsdp",
            "takes all 8 GPUs, .*: use tp_pp",
        ),
        ("--gpus 8xH100 --strategy tp_pp --pp 2", "has groups of ranks compute each stage: add --tp"),
        ("--gpus 8xH100 --strategy tp_pp --tp 2 --pp 2", "is one pipeline over all 8 GPUs: with --pp 2 use fsdp_tp_pp"),
    ],
)
def test_degrees_in_stages_that_contradict_each_other(words: str, said: str) -> None:
    given = dict(zip(words.split()[::2], words.split()[1::2], strict=True))
    cluster = parse_cluster(given.pop("--gpus"))
    with pytest.raises(PlanError, match=said):
        make_workload(read_given({key[2:]: value for key, value in given.items()}, ()), True, cluster, SPEC)


def test_stages_that_ranks_compute_together_are_planned_where_both_are_asked_for() -> None:
    cluster = parse_cluster("8xH100")
    asked = Workload(tensor_parallel=2, pipeline_parallel=2, checkpointing=Checkpointing.NONE)
    found = {(one.strategy.name, one.tensor_parallel, one.copy_ranks) for one in families(asked, cluster, True)}
    assert found == {("fsdp_tp_pp", 2, 4)}
    whole = {one.strategy.name for one in families(replace(asked, pipeline_parallel=4), cluster, True)}
    assert whole == {"tp_pp"}
    unasked = {one.strategy.name for one in families(Workload(), cluster, True)}
    assert not unasked & {"tp_pp", "fsdp_tp_pp"}


@pytest.mark.parametrize(
    ("strategy", "checkpointing", "said"),
    [
        ("ddp_pp", Checkpointing.NONE, "DDP would never reduce gradients"),
        ("fsdp_pp", Checkpointing.NONE, None),
        ("tp_pp", Checkpointing.NONE, None),
        ("fsdp_tp_pp", Checkpointing.NONE, None),
        ("fsdp_pp", Checkpointing.FULL, "would run again for each group of weights"),
        ("pp", Checkpointing.FULL, "would run again for each group of weights"),
        ("pp", Checkpointing.NONE, None),
    ],
)
def test_what_a_backward_in_halves_does_not_go_with(
    strategy: str, checkpointing: Checkpointing, said: str | None
) -> None:
    halved = Pipeline(degree=2, schedule=Schedule.ZERO_BUBBLE)
    family = Family(strategy=STRATEGIES[strategy], offload=Offload.NONE, checkpointing=checkpointing, pipeline=halved)
    found = refuses_halves(family)
    assert found is None if said is None else said in str(found)
    assert refuses_halves(replace(family, pipeline=replace(halved, schedule=Schedule.ONE_F_ONE_B))) is None
