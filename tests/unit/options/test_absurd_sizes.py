"""Sizes that fit nowhere are refused by arithmetic: nothing is built, filled or simulated for them."""

from types import SimpleNamespace

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.checks import check_tokens
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.workload.training import MOST_TOKENS, Workload


def check(gpus="8xH100", has_sequence=True, **given):
    check_tokens(Workload(**given), find_cluster(gpus), SimpleNamespace(has_sequence=has_sequence))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"micro_batch": 1_000_000}, "1,000,000 x 4,096 tokens"),
        ({"micro_batch": 2**31 - 1, "seq_len": 2**31 - 1}, "2,147,483,647 x 2,147,483,647"),
        ({"seq_len": 2**31 - 1}, "1 x 2,147,483,647"),
        ({"global_batch": 2**31 - 8, "grad_accum": 1}, "268,435,455 x 4,096"),
    ],
)
def test_a_micro_batch_beyond_all_gpus(given, said):
    with pytest.raises(UsageError) as refused:
        check(**given)
    assert said in str(refused.value)
    assert f"{MOST_TOKENS:,}" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"micro_batch": 4096},
        {"seq_len": 2**20},
        {"global_batch": 2**31 - 1},
        {"global_batch": 2**20, "grad_accum": 64},
    ],
)
def test_large_jobs_pass(given):
    check(**given)


def test_a_model_without_a_sequence_has_samples_alone():
    check(micro_batch=10**6, has_sequence=False)
