"""Launching, watching and reading runs from the explorer: run folders as a supervisor leaves them, and a real one."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Button, DataTable, Input, Static

from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.screens.launch import LaunchScreen
from gpu_plan.tui.screens.runs import RunsScreen
from gpu_plan.tui.screens.watch import WatchScreen
from gpu_plan.tui.state import State
from tests.support.explorer import Canned, app_of, screen_text, settled, until
from tests.support.plan_example import llama_on_8xh100
from tests.support.run_example import rank_record, run_record, write_folder

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)
EXAMPLES = Path(__file__).parents[2] / "examples"


def said(app, selector):
    """The text of a panel's line."""
    return str(app.screen.query_one(selector, Static).render())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_folder_without_runs_says_so(folder):
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("w")
        await until(pilot, lambda: "There are no runs below" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))


async def test_runs_are_listed_and_told_against_their_plan(folder):
    plan = saved_plan(llama_on_8xh100())
    write_folder(folder, run_record(), plan, rank_record(0), rank_record(1))
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen) and app.screen.query_one(DataTable).row_count)
        assert "succeeded" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: "predicted beside measured" in screen_text(app))
        assert "measured/predicted" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen.query_one("#runs").display)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))


async def test_a_run_that_goes_on_is_watched(folder):
    now = time.time()  # Its supervisor is this very process, which must not have begun after the record.
    (attempt,) = run_record().attempts
    going = run_record(
        status="running", started=now, updated=now, ended=None, exit_code=None,
        attempts=(replace(attempt, started=now, ended=None, exit_code=None, cause=None),),
    )  # fmt: skip
    ranks = [replace(rank_record(rank), status="running", exit_code=None) for rank in (0, 1)]
    run = write_folder(folder, going, saved_plan(llama_on_8xh100()), *ranks)
    (run.path / "logs").mkdir()
    (run.path / "logs" / "rank-0.log").write_text("step 1\nstep 2: \x1b[31mloss 2.0\n")
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen) and app.screen.query_one(DataTable).row_count)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen) and "step 2" in said(app, "#watch-log"))
        assert said(app, "#watch-state") == "running, attempt 1; the plan expects 7.24 s per step"
        table = app.screen.query_one(DataTable)
        assert [str(cell) for cell in table.get_row_at(1)][:5] == ["1", "running", "3", "1.3333", "500 ms"]
        await pilot.press("ctrl+x")
        await pilot.pause()
        assert isinstance(app.screen, WatchScreen), "only what was launched here is interrupted"
        run.write_run(run_record())
        await until(pilot, lambda: said(app, "#watch-state").startswith("succeeded"))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, WatchScreen))


async def test_what_does_not_fit_is_not_launched(folder):
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("m", "m", "m")
        await until(pilot, lambda: settled(app))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen) and "does not fit" in said(app, "#launch-note"))
        app.screen.query_one(Input).value = "train.py"
        await pilot.press("enter")
        await until(pilot, lambda: "there is no plan yet" in said(app, "#launch-note"))
        assert app.screen.query_one(Button).disabled


@pytest.mark.slow
async def test_a_script_is_launched_after_a_look_and_watched_to_its_end(folder):
    """Real planner processes, a real run of two CPU processes."""
    words = ("--steps", "4")
    app = ExplorerApp(State(model=str(EXAMPLES / "train.py"), gpus="2xcpu", script_words=words), environment={})
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app), tries=24_000)
        assert "= sequence" in screen_text(app)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen) and "plan.json" in said(app, "#launch-note"))
        assert app.screen.query_one(Input).value.endswith("train.py --steps 4")
        assert app.screen.query_one(Button).disabled, "nothing runs before it was shown"
        await pilot.press("enter")
        await until(pilot, lambda: not app.screen.query_one(Button).disabled, tries=24_000)
        assert "accelerate" in said(app, "#launch-files")
        app.screen.query_one(Input).value += " "
        await until(pilot, lambda: app.screen.query_one(Button).disabled)
        app.screen.query_one(Input).focus()
        await pilot.press("enter")
        await until(pilot, lambda: not app.screen.query_one(Button).disabled, tries=24_000)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await until(pilot, lambda: said(app, "#watch-state").startswith("succeeded"), tries=48_000)
        rows = app.screen.query_one(DataTable)
        assert [str(rows.get_row_at(rank)[2]) for rank in (0, 1)] == ["4", "4"]
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, WatchScreen))
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen) and app.screen.query_one(DataTable).row_count)
        await pilot.press("enter")
        await until(pilot, lambda: "predicted beside measured" in screen_text(app))
