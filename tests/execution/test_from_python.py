"""`gpu_plan.run`: plans executed from Python, with a script and with a function."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gpu_plan
from gpu_plan.executor.from_python import RunFailedError
from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.plan.files import load
from tests.execution.scripts import function
from tests.support.matrix import MODEL, SCRIPTS, Cell, make_weights, save_plan, single
from tests.support.plan_example import llama_on_8xh100, nothing_fits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("python")


def plan_of(strategy, folder, ranks=2):
    cell = single("accelerate") if ranks == 1 else Cell(loop="accelerate", strategy=strategy, accumulation=1)
    return save_plan(cell, MODEL, folder)


@pytest.mark.slow
@pytest.mark.own_process
def test_a_function_runs_under_the_plan_and_is_recorded(folder):
    """FSDP2 on two processes forked from this one."""
    result = gpu_plan.run(load(plan_of("fsdp", folder)), function.train, [str(MODEL)], working_directory=folder)
    assert result.check() is result
    assert result.succeeded
    assert result.exit_code == 0
    assert [rank.status for rank in result.ranks] == ["done", "done"]
    assert {rank.actual.strategy for rank in result.ranks} == {"fsdp"}
    assert {rank.actual.micro_batch_size for rank in result.ranks} == {4}
    assert len(result.losses) == 3
    (attempt,) = result.record.attempts
    assert attempt.last_step == 3
    assert attempt.command == ("accelerate.notebook_launcher(train)",)
    # Nothing of the ranks stays in this process.
    assert not any(isinstance(finder, PostImport) for finder in sys.meta_path)
    assert not [name for name in os.environ if name.startswith(("GPU_PLAN_RUN", "ACCELERATE_", "FSDP_", "MASTER_"))]


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [("ddp", 2), ("zero2", 2), ("single", 1)],
)
def test_other_strategies(folder, strategy, ranks):
    result = gpu_plan.run(plan_of(strategy, folder, ranks), function.train, [str(MODEL)], working_directory=folder)
    assert result.check().ranks[0].actual.strategy in (strategy, None)
    assert len(result.ranks) == ranks


@pytest.mark.slow
@pytest.mark.own_process
def test_a_function_that_fails_is_told_by_the_result(folder):
    result = gpu_plan.run(plan_of("ddp", folder), function.train, [str(MODEL), True], working_directory=folder)
    assert result.record.status == "failed"
    assert result.exit_code == 1
    assert result.record.attempts[0].culprit == 1
    assert "as it was told" in result.record.message
    with pytest.raises(RunFailedError, match="as it was told"):
        result.check()


@pytest.mark.slow
def test_a_script_runs_as_plan_execute_runs_it(folder):
    model = make_weights(folder)
    plan = save_plan(Cell(loop="accelerate", strategy="ddp"), model, folder / "..")
    script = SCRIPTS / "accelerate_loop.py"
    result = gpu_plan.run(plan, script, ["--model", model], working_directory=folder, max_restarts=0)
    assert result.check().record.script == str(script)
    assert len(result.losses) == 4


def test_what_cannot_be_run_is_refused_before_anything_is_launched(tmp_path):
    with pytest.raises(UsageError, match="nothing in this plan document fits"):
        gpu_plan.run(nothing_fits(), "train.py", working_directory=tmp_path)
    with pytest.raises(UnreachableError):
        gpu_plan.run(tmp_path / "plan.json", "train.py", working_directory=tmp_path)
    with pytest.raises(UnreachableError):
        gpu_plan.run(llama_on_8xh100(), "there_is_no_script.py", working_directory=tmp_path)


def test_several_nodes_need_a_script(tmp_path):
    document = llama_on_8xh100()
    far = replace(document, cluster={**document.cluster, "nodes": 2})
    with pytest.raises(UsageError, match="this machine only"):
        gpu_plan.run(far, function.train, working_directory=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_current_plan_costs_no_further_import():
    code = "import sys; from gpu_plan import current_plan; sys.exit('gpu_plan.executor.from_python' in sys.modules)"
    root = Path(gpu_plan.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
    assert gpu_plan.run is not None
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        gpu_plan.walk  # noqa: B018
