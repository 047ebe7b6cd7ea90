"""Plans in stages: what ranks are told, how large a batch the script's loop gets, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.prepare import Drawn, draw
from gpu_plan.executor.names import MICRO_BATCH_SIZE
from gpu_plan.executor.runner.options import read_options
from gpu_plan.executor.runner.parallel.piped.layout import VARIABLE, Layout, read_layout
from gpu_plan.executor.script.read import read_script
from gpu_plan.executor.supervise.ladder.planner_process import asked_again
from gpu_plan.executor.supervise.ladder.replan import abilities
from gpu_plan.executor.supervise.ladder.rungs import rungs
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.figures import AtPeak, StageFigures, StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan
from tests.support.launch_plans import job, saved

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator()
for batch in accelerator.prepare(loader):
    accelerator.backward(model(**batch).loss)
"""
PLAIN = """
from torch.utils.data import DataLoader
for batch in DataLoader(data, batch_size=8):
    model(**batch).loss.backward()
"""


def staged(strategy: str = "fsdp_pp", precision: str = "bf16-mixed", virtual: int = 1, stages: int = 4) -> SavedPlan:
    """A plan of eight layers on eight ranks, micro batch 2 x 4."""
    made = saved("single", "8xH100", micro=2, steps=4)
    choice = StrategyChoice(
        name=strategy,
        data_parallel=8 // stages,
        pipeline_parallel=stages,
        zero_stage=3 if strategy == "fsdp_pp" else 0,
        micro_batch_size=2,
        gradient_accumulation_steps=4,
        precision=precision,
        schedule="interleaved" if virtual > 1 else "1f1b",
        virtual_stages=virtual,
    )
    each = 16 // (stages * virtual)
    figures = tuple(
        StageFigures(
            rank=rank,
            layers=tuple(((n * stages + rank) * each, (n * stages + rank + 1) * each) for n in range(virtual)),
            embedding=rank == 0,
            head=rank == stages - 1,
            parameters=1,
            in_flight=1,
            peak_allocated_bytes=0,
            phase_of_peak="backward",
            at_peak=AtPeak(),
            busy_seconds=1.0,
        )
        for rank in range(stages)
    )
    return replace(made, plan=replace(made.plan, strategy=choice, stages=figures))


def drawn(folder: Path, plan: SavedPlan, text: str = ACCELERATE) -> Drawn:
    script = folder / "train.py"
    script.write_text(text)
    return draw(job(plan, script), read_script(script), folder=folder)


def test_ranks_are_told_their_layers(tmp_path: Path) -> None:
    target = drawn(tmp_path, staged()).target
    wanted = Layout(
        schedule="Schedule1F1B",
        ranks=4,
        pipelines=2,
        micro_batches=4,
        stages=((0, 4), (4, 8), (8, 12), (12, 16)),
        data="sharded",
        compute="bfloat16",
    )
    assert read_layout(target.environment) == wanted
    assert find_engine("torchrun")(target).command[0] == "torchrun"
    assert target.environment[MICRO_BATCH_SIZE] == "8", "a call of the model takes all micro batches of a step"
    assert target.environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "1"


def test_stages_of_a_rank_are_told_in_the_pipelines_order(tmp_path: Path) -> None:
    target = drawn(tmp_path, staged("ddp_pp", virtual=2)).target
    assert target.layout is not None
    assert target.layout.schedule == "ScheduleInterleaved1F1B"
    assert target.layout.stages == tuple((first, first + 2) for first in range(0, 16, 2))
    assert (target.layout.data, target.layout.compute, target.layout.local) == ("averaged", "", 2)


def test_a_pipelines_ranks_share_its_samples() -> None:
    layout = Layout(schedule="Schedule1F1B", ranks=2, pipelines=3, micro_batches=2, stages=((0, 1), (1, 2)))
    assert [layout.group_of(rank) for rank in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [layout.place_of(rank) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    told = {VARIABLE: json.dumps(layout.fields())}
    assert read_layout(told) == layout
    assert [read_options({**told, "RANK": str(rank)}).counts_samples for rank in (0, 2, 3, 5)] == [
        True,
        True,
        False,
        False,
    ]
    assert read_layout({}) is None
    with pytest.raises(ValueError, match="no JSON object"):
        read_layout({VARIABLE: "[2]"})


def test_what_no_launch_can_do_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.py cannot be run in 4 pipeline stages in fp16-mixed"):
        drawn(tmp_path, staged(precision="fp16-mixed"))
    older = staged()
    with pytest.raises(UsageError, match="does not say which layers they hold"):
        drawn(tmp_path, replace(older, plan=replace(older.plan, stages=())))
    with pytest.raises(UsageError, match="accelerate launch runs no pipeline"):
        find_engine("accelerate")(drawn(tmp_path, staged()).target)


def test_a_plain_loop_shares_its_samples_out(tmp_path: Path) -> None:
    lines = drawn(tmp_path, staged(), PLAIN).refused
    assert any("shares its samples out to nobody: all 2 groups" in line and "--pp 8" in line for line in lines), lines
    assert not any("shares its samples" in line for line in drawn(tmp_path, staged("pp", stages=8), PLAIN).refused)


def test_the_ladder_keeps_the_stages(tmp_path: Path) -> None:
    """Out of memory, smaller micro batches go through the same stages; a call of the model takes as many samples."""
    script = tmp_path / "train.py"
    script.write_text(ACCELERATE)
    made = staged(virtual=2)
    options = asked_again(job(made, script), made.plan.strategy).options
    assert (options["pp"], options["schedule"], options["vpp"]) == ("4", "interleaved", "2")
    able, _ = abilities(job(made, script), [], tmp_path)
    smaller = next(iter(rungs(made.plan.strategy, able)))
    assert (smaller.micro_batch_size, smaller.gradient_accumulation_steps, smaller.loop_batch_size) == (1, 8, 8)
