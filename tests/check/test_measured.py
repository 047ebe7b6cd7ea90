"""A recorded run is held against a job only where both are alike."""

from dataclasses import replace

import pytest

from gpu_plan.commands.check.measured import measured_run
from gpu_plan.executor.read_run import read_whole
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.planner.regression.limits import parse_budget
from gpu_plan.planner.regression.measured import MeasuredRun, measured_findings
from tests.check.test_baseline import GIB, baseline, job, now
from tests.support.plan_example import llama_on_8xh100
from tests.support.run_example import MIB, cuda_record, rank_record, run_record, write_folder

ALIKE = {"cluster.gpu": "A100", "cluster.gpus": 1, "strategy.micro_batch_size": 4}
STATE = baseline(configuration=ALIKE)
RUN = MeasuredRun(
    run_id="20261120-1",
    configuration=ALIKE,
    versions={"torch": "2.13.0+cu128", "transformers": "5.22.0"},
    figures={"peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 9 * GIB},
    step_microseconds=1100,
)


def found(run, **values):
    return measured_findings(job(**values), now(STATE), STATE, run)


def test_what_was_foretold_informs():
    told = found(RUN)
    assert {finding.level for finding in told} == {"notice"}
    assert "planned 8.0 GiB, measured 8.0 GiB (+0.0%)" in told[0].message


def test_measured_growth_fails():
    told = found(replace(RUN, figures={"peak_allocated_bytes": 9 * GIB}))
    assert [finding.level for finding in told][:1] == ["error"]
    assert "measured peak allocated 8.0 GiB -> 9.0 GiB (+1.0 GiB, +12.5%), beyond fail = '5%'" in told[0].message


def test_measured_memory_over_a_budget_fails():
    told = found(RUN, budgets=(parse_budget("peak <= 7 GiB"),))
    assert any(finding.level == "error" and "over the budget" in finding.message for finding in told)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"configuration": {**ALIKE, "cluster.gpu": "T4"}}, "its GPU is T4, the job's A100"),
        ({"configuration": {**ALIKE, "strategy.micro_batch_size": 8}}, "its micro batch is 8, the job's 4"),
        ({"versions": {"torch": "2.12.0"}}, "it ran with torch 2.12.0, here is 2.13.0"),
        ({"figures": {}}, "its ranks ran on CPUs"),
    ],
)
def test_unlike_runs_are_not_compared_and_it_is_said(change, said):
    told = found(replace(RUN, **{"figures": {"peak_allocated_bytes": 99 * GIB}, **change}))
    assert [finding.level for finding in told] == ["notice"]
    assert said in told[0].message


# -- joined to real records ------------------------------------------------------------------------------------


def test_a_run_folder_is_read_under_a_baselines_names(tmp_path):
    plan = saved_plan(llama_on_8xh100())
    ranks = (cuda_record(0, 900 * MIB), cuda_record(1, 1000 * MIB))
    run = measured_run(read_whole(write_folder(tmp_path, run_record(), plan, *ranks)))
    assert run.figures["peak_allocated_bytes"] == 1000 * MIB  # the worst rank
    assert set(run.figures) == {"peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes"}
    assert (run.configuration["cluster.gpu"], run.configuration["cluster.gpus"]) == ("H100", 8)
    assert run.configuration["strategy.name"] == plan.plan.strategy.name
    assert run.versions == plan.created_with
    assert run.step_microseconds == 500_000


def test_ranks_on_cpus_give_no_figures(tmp_path):
    folder = write_folder(tmp_path, run_record(), saved_plan(llama_on_8xh100()), rank_record(0), rank_record(1))
    assert measured_run(read_whole(folder)).figures == {}


def test_a_run_without_its_plan_is_refused(tmp_path):
    folder = write_folder(tmp_path, run_record(), None, rank_record(0))
    with pytest.raises(InputError, match="nothing says what it ran"):
        measured_run(read_whole(folder))
