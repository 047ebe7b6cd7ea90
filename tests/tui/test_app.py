"""The explorer driven by real keys, on hand-made answers: the configuration, and what is drawn of it."""

from dataclasses import replace

import pytest
from textual.widgets import Input, OptionList

from gpu_plan.planner.plan.files import load, load_any
from gpu_plan.tui.choices import CHOICES, STEPPED
from gpu_plan.tui.screens.leave import LeaveScreen
from tests.support.explorer import LLAMA_STATE, Canned, app_of, screen_text, settled, until
from tests.support.plan_example import nothing_fits, other_way

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)


async def test_it_begins_with_the_best_plan():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert app.session.state.value("strategy") == "fsdp"
        text = screen_text(app)
        assert "best plan" in text
        assert "FITS  FSDP2" in text
        assert "$ plan meta-llama/Llama-3.1-8B --gpus 8xH100 --global-batch 64" in text


async def test_every_option_moves_on_with_its_key_and_back_with_the_capital():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        for name in STEPPED:
            if name == "lora-rank":
                continue
            before = app.scene().value(name)
            await pilot.press(CHOICES[name].key)
            await until(pilot, lambda: settled(app))
            assert app.session.state.value(name) != before or name == "grad-accum"
            await pilot.press(CHOICES[name].key.upper())
            await until(pilot, lambda: settled(app))
            if name not in ("seq-len", "precision"):
                assert app.scene().value(name) == before, name


async def test_a_change_is_drawn_and_told_as_a_command():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("m")
        await until(pilot, lambda: settled(app))
        text = screen_text(app)
        assert "your configuration" in text
        assert "micro batch     8*" in text
        for word in app.session.state.focus_command.split():
            assert word in text
        await pilot.press("backspace")
        await until(pilot, lambda: settled(app))
        assert "best plan" in screen_text(app)


async def test_gpus_move_by_number_and_by_kind():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        for key, gpus in (("n", "16xH100"), ("N", "8xH100"), ("g", "8xGH200-96GB"), ("G", "8xH100")):
            await pilot.press(key)
            assert app.session.state.gpus == gpus
        await until(pilot, lambda: settled(app))


async def test_what_is_refused_is_said_and_the_next_key_mends_it():
    refuse = {"micro-batch": "8"}
    canned = Canned(refuse=lambda r: "too many samples" if set(refuse.items()) <= set(r.words) else None)
    app = app_of(canned)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("m")
        await until(pilot, lambda: app.session.problem)
        assert "NO PICTURE  too many samples" in screen_text(app)
        await pilot.press("M")
        await until(pilot, lambda: settled(app))
        assert "NO PICTURE" not in screen_text(app)


@pytest.mark.parametrize(
    "form", ["plan", "text", *(pytest.param(form, marks=pytest.mark.slow) for form in ("md", "json", "html"))]
)
async def test_leaving_with_a_file(form, tmp_path):
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
        options = app.screen.query_one(OptionList)
        options.highlighted = options.get_option_index(form)
        await pilot.press("enter")
        target = tmp_path / "out"
        app.screen.query_one(Input).value = str(target)
        await pilot.press("enter")
        await until(pilot, target.exists)
        if form == "plan":
            assert load(target).plan.strategy.name == "fsdp"
        elif form == "json":
            assert load_any(target).best.strategy.name == "fsdp"
        else:
            assert "Llama-3.1-8B" in target.read_text()
        target.write_text("mine")
        await pilot.press("enter")
        await pilot.pause()
        assert target.read_text() == "mine", "a file that exists needs a second yes"
        await pilot.press("enter")
        await until(pilot, lambda: target.read_text() != "mine")


async def test_read_only_launches_nothing_and_still_writes():
    app = app_of(Canned(), readonly=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
        offered = [option.id for option in app.screen.query_one(OptionList).options]
        assert "launch" not in offered
        assert {"copy", "plan", "html"} <= set(offered)


async def test_where_nothing_fits_the_nearest_change_is_told():
    others = (other_way("--checkpointing full"), other_way("--peft lora"))
    app = app_of(Canned(document=replace(nothing_fits(), alternatives=others)))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.session.busy is None and not app.session.searching)
        text = screen_text(app)
        assert "OOM" in text
        assert nothing_fits().nearest_change[:40] in text
        assert "or --peft lora: FSDP2, micro batch 2" in text


async def test_the_state_starts_from_a_plan_at_hand():
    state = LLAMA_STATE.with_option("seq-len", "8192")
    app = app_of(Canned(), state)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert "--seq-len 8192" in screen_text(app)


async def test_the_footer_shows_what_is_possible_now():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))

        def foot():
            return screen_text(app).splitlines()[-1]

        await until(pilot, lambda: "v Pin" in foot())
        assert "Launch" in foot()
        assert app.check_action("best", ()) is None
        await pilot.press("v", "m")
        await until(pilot, lambda: settled(app) and "v Compare" in foot())
        assert app.check_action("best", ()) is True
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "Launch" not in foot() and "q Quit" in foot())


async def test_a_panels_help_begins_with_the_panel():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
        await pilot.press("f1")
        await until(pilot, lambda: "replaced after a second Enter" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
