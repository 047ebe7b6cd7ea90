"""The explorer on small terminals, without colour, and in ASCII."""

import pytest
from textual.widgets import Static

from tests.support.explorer import Canned, app_of, screen_text, settled, until

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)


async def test_a_small_terminal_is_said_and_usable_again_when_enlarged():
    app = app_of(Canned())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.resize_terminal(50, 12)
        await until(pilot, lambda: "The explorer needs 72 x 20" in screen_text(app))
        assert "This terminal is 50 x 12" in screen_text(app)
        await pilot.press("m")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: settled(app) and "FSDP2" in screen_text(app))
        assert app.query_one("#small", Static).display is False
        assert "micro 8*" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), pytest.param((200, 60), marks=pytest.mark.slow)])
async def test_ascii_is_ascii(size):
    app = app_of(Canned(), ascii_only=True)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: settled(app))
        for keys in ((), ("question_mark",), ("escape", "d"), ("escape", "e"), ("escape", "x"), ("escape", "ctrl+p")):
            await pilot.press(*keys)
            await pilot.pause()
            text = screen_text(app)
            assert text.isascii(), sorted({c for c in text if not c.isascii()})


async def test_no_colour_tells_categories_by_letters():
    app = app_of(Canned(), environment={"NO_COLOR": "1"})
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert "AAAAAAAA" in screen_text(app)


async def test_a_long_problem_is_told_in_full():
    words = "the model that was asked for is not a hub id, and " + "no such file exists " * 6 + "so write another"
    app = app_of(Canned(refuse=lambda request: words))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.session.problem)
        await until(pilot, lambda: "so write another" in screen_text(app))
        assert "e edits every option" in screen_text(app)
