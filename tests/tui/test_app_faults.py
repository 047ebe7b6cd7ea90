"""The explorer when its planner processes die, are slow, or answer late."""

import pytest

from tests.support.explorer import Canned, app_of, screen_text, settled, until

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)


async def test_a_planner_process_that_dies_is_said_and_started_again():
    canned = Canned()
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        app.session.on_end("replay", "was killed by signal 9")
        await pilot.pause()
        assert "was killed by signal 9. Press F5" in screen_text(app)
        await pilot.press("f5")
        await until(pilot, lambda: settled(app) and not app.session.problem)
        assert "FITS" in screen_text(app)


async def test_answers_to_states_that_were_left_change_nothing():
    canned = Canned(silent=True)
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: canned.asked)
        search = canned.asked[-1]
        canned.answer(search)
        await until(pilot, lambda: canned.asked[-1].kind == "picture")
        first = canned.asked[-1]
        await pilot.press("m", "m")
        second = canned.asked[-1]
        assert second.number > first.number
        canned.answer(second)
        shown = app.session.picture
        canned.answer(first)
        assert app.session.picture is shown
        assert app.session.state.value("micro-batch") == "16"


async def test_after_a_planner_process_died_no_old_figures_pass_for_new_ones():
    canned = Canned()
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        canned.silent = True
        app.session.on_end("replay", "was killed by signal 9")
        await pilot.press("m")
        await pilot.pause()
        assert "NO PICTURE  the planner's replay process was killed by signal 9" in screen_text(app)
        canned.silent = False
        await pilot.press("f5")
        await until(pilot, lambda: settled(app) and not app.session.problem)
        assert app.session.picture_of == app.session.state.focus_command


async def test_without_the_process_that_searches_pictures_still_come():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        app.session.on_end("search", "was killed by signal 9")
        await pilot.press("m")
        await until(pilot, lambda: settled(app))
        await pilot.press("a")
        await until(pilot, lambda: app.session.current)
        assert app.session.busy is None, "nobody searches any more"
        text = screen_text(app)
        assert "NO PICTURE" not in text
        assert "micro batch 8" in text
        assert "the planner's search process was killed by signal 9. Press F5" in text
