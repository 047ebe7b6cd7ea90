"""Plans and other ways as tables in the explorer: sorted, filtered, compared, chosen."""

from dataclasses import replace

import pytest
from textual.widgets import DataTable

from gpu_plan.tui.screens.compare import CompareScreen
from gpu_plan.tui.widgets.plans import PlansTable
from tests.support.explorer import Canned, app_of, screen_text, settled, until
from tests.support.explorer_jobs import GENERATION_STATE, generation_document, generation_picture
from tests.support.plan_example import llama_on_8xh100, other_way

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)


async def test_plans_are_sorted_filtered_hidden_and_chosen():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        table = app.query_one(PlansTable)
        assert table.row_count == 12
        await pilot.press("h")
        assert table.row_count == 5
        await pilot.press("t")
        assert table.shown[0].title == "FSDP2"
        assert table.shown[0].checkpointing == "full"
        await pilot.press("slash", *"zero")
        await until(pilot, lambda: table.row_count == 2)
        await pilot.press("enter")
        await pilot.press("down", "enter")
        await until(pilot, lambda: settled(app))
        assert app.session.state.value("strategy") == table.shown[table.cursor_row].candidate.strategy.name
        assert not app.session.state.following
        await pilot.press("b")
        await until(pilot, lambda: settled(app))
        assert app.session.state.following
        assert app.session.state.value("strategy") == "fsdp"


async def test_a_pinned_configuration_is_compared():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("v", "m")
        await until(pilot, lambda: settled(app))
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        text = screen_text(app)
        assert "micro batch size" in text
        assert "device used" in text
        await pilot.press("r")
        await until(pilot, lambda: not isinstance(app.screen, CompareScreen))
        assert app.session.pinned == app.session.picture.document


async def test_a_click_on_a_columns_head_sorts_and_a_second_one_turns_round():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        table = app.plans
        width = sum(column.get_render_width(table) for column in list(table.columns.values())[:5])
        for backwards in (False, True):
            await pilot.click(PlansTable, offset=(width + 2, 0))
            await until(pilot, lambda turned=backwards: (table.sort_by, table.backwards) == ("memory", turned))
            fitting = [row.candidate.memory.device_used_bytes for row in table.shown[:5]]
            assert fitting == sorted(fitting, reverse=backwards)
        assert "GiB▲" in screen_text(app)


async def test_why_a_plan_lost_is_told_where_its_column_is_out_of_sight():
    app = app_of(Canned())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("ctrl+end")
        await until(pilot, lambda: app._pointed)
        assert "uses one of the 8 GPUs" in screen_text(app).splitlines()[-2]
        await pilot.press("ctrl+home")
        await until(pilot, lambda: not app._pointed)
        assert "$ plan" in screen_text(app).splitlines()[-2]


async def test_escape_closes_the_filter_and_shows_every_plan_again():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("slash", *"zero")
        await until(pilot, lambda: app.plans.row_count == 4)
        await pilot.press("escape")
        await until(pilot, lambda: app.plans.row_count == 12)
        assert app.focused is app.plans


@pytest.mark.parametrize(
    "size", [(72, 20), *(pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (100, 30), (110, 22)))]
)
async def test_the_table_of_plans_is_in_sight_whatever_stands_above_it(size):
    app = app_of(Canned(picture=generation_picture, search=generation_document), GENERATION_STATE)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: settled(app))
        for keys in ((), ("k",), ("m",) * 6, ("b",)):
            await pilot.press(*keys)
            await until(pilot, lambda: settled(app))
            await until(pilot, lambda: app.plans.size.height >= 4 and "batch  prefill" in screen_text(app))
            status = app.screen.query_one("#status")
            assert app.plans.region.bottom <= status.region.y
        await pilot.resize_terminal(120, 50)
        await until(pilot, lambda: app.screen.query_one("#timeline").size.height == 18)


async def test_what_else_could_be_done_is_evaluated_when_asked_and_taken_with_enter():
    others = (other_way("--optimizer adamw-8bit"), other_way("2x8xH100"))
    canned = Canned(document=replace(llama_on_8xh100(), alternatives=others))
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert not any(ask.request.advise for ask in canned.asked)
        await pilot.press("f")
        await until(pilot, lambda: app.screen.query("#otherwise") and app.screen.query_one(DataTable).row_count == 2)
        assert canned.asked[-1].request.advise
        await pilot.press("enter")
        await until(pilot, lambda: not app.screen.query("#otherwise") and settled(app))
        assert "--optimizer adamw-8bit" in app.session.state.command
        assert app.session.undo()
        assert "--optimizer" not in app.session.state.command


async def test_what_else_is_asked_of_a_configuration_that_does_not_fit():
    canned = Canned(document=replace(llama_on_8xh100(), plans=()))
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("m")
        await until(pilot, lambda: settled(app) and app.session.current)
        await pilot.press("f")
        await until(pilot, lambda: canned.asked[-1].request.advise)
        assert canned.asked[-1].request.pinned


async def test_a_configuration_that_the_search_has_not_is_a_row_of_its_own():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        table = app.screen.query_one(PlansTable)
        before = len(table.shown)
        await pilot.press("m", "m")
        await until(pilot, lambda: settled(app) and len(table.shown) == before + 1)
        (own,) = [row for row in table.shown if row.focused]
        assert own.batch == "16×1"
        await pilot.press("b")
        await until(pilot, lambda: settled(app) and len(table.shown) == before)


async def test_a_reason_that_is_cut_says_so():
    app = app_of(Canned())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: settled(app) and " OOM " in screen_text(app))
        lines = [line.rstrip() for line in screen_text(app).splitlines() if " OOM " in line]
        assert len(lines) > 3
        assert all(line.endswith("…") or line.endswith("batch of 64") for line in lines), lines
