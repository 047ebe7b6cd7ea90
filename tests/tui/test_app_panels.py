"""Panels, forms and help of the explorer; the tasks that it shows."""

import pytest
from textual.widgets import DataTable, Input

from gpu_plan.tui.screens.compare import CompareScreen
from gpu_plan.tui.screens.drill import DrillScreen
from gpu_plan.tui.screens.form import FormScreen
from tests.support.explorer import Canned, app_of, screen_text, settled, until
from tests.support.explorer import picture as training
from tests.support.explorer_jobs import GENERATION_STATE, SCRIPT_STATE, generation_document, generation_picture

pytestmark = pytest.mark.asyncio
SIZE = (120, 40)


async def test_the_drill_goes_down_and_back_with_escape():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("d")
        await until(
            pilot, lambda: isinstance(app.screen, DrillScreen) and app.screen.query_one(DataTable).row_count == 2
        )
        assert "At the peak: 15.0 GiB" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "At the peak > activations: 12.0 GiB" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "train.py:88" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "At the peak > activations: 12.0 GiB" in screen_text(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert not isinstance(app.screen, DrillScreen)


async def test_a_step_is_shown_stream_by_stream():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("j")
        await until(pilot, lambda: "collectives" in screen_text(app))
        (compute,) = [line for line in screen_text(app).splitlines() if "compute" in line]
        assert "fffff" in compute
        assert "bbbbb" in compute
        assert "93%" in compute
        await pilot.press("escape")
        await pilot.pause()
        assert "stream by stream" not in screen_text(app)


async def test_the_form_changes_what_no_key_reaches():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query_one("#in-gpus", Input).value = "2x8xA100-80GB"
        app.screen.query_one("#in-global-batch", Input).value = ""
        app.screen.query_one("#in-strategy", Input).value = "zero3"
        app.screen.query_one("#in-set", Input).value = "alloc.expandable_segments=true"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: settled(app) and not isinstance(app.screen, FormScreen))
        assert app.session.state.command == (
            "plan meta-llama/Llama-3.1-8B --gpus 2x8xA100-80GB --strategy zero3 --set alloc.expandable_segments=true"
        )


async def test_a_generation_moves_with_keys_of_its_own():
    app = app_of(Canned(picture=generation_picture, search=generation_document), GENERATION_STATE)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        text = screen_text(app)
        for words in ("replicas", "KV cache", "prefill", "peak GiB: load", "context up to 131,072 tokens"):
            assert words in text
        await pilot.press("k")
        await until(pilot, lambda: settled(app))
        assert "tensor parallel TP 2" in screen_text(app)
        assert app.session.state.focus_command.endswith("--strategy tp --offload none --tp 2 --pin")
        await pilot.press("m", "l")
        await until(pilot, lambda: settled(app))
        assert dict(app.session.state.given) == {"task": "infer", "batch": "2", "context": "8192"}
        await pilot.press("u")  # Of training: no option of a generation.
        assert dict(app.session.state.given) == {"task": "infer", "batch": "2", "context": "8192"}


async def test_a_script_keeps_what_it_decides_itself():
    app = app_of(Canned(), SCRIPT_STATE)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert "= sequence" in screen_text(app)
        before = app.session.state
        await pilot.press("l", "a", "k", "u")
        assert app.session.state == before
        await pilot.press("z")
        await until(pilot, lambda: settled(app))
        assert app.session.state.command == "plan train.py --gpus 8xH100 --optimizer adamw-fused -- --steps 20"
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, FormScreen))
        assert not app.screen.query("#in-seq-len")
        app.screen.query_one("#in-args", Input).value = "--steps 'x"
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert isinstance(app.screen, FormScreen), "arguments that cannot be split keep the form open"
        app.screen.query_one("#in-args", Input).value = "--steps 9"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: settled(app) and not isinstance(app.screen, FormScreen))
        assert app.session.state.script_words == ("--steps", "9")


async def test_the_other_task_from_the_form_and_the_palette():
    def made(request, exact=True):
        return generation_picture(request, exact) if dict(request.words).get("task") else training(request, exact)

    def found(request):
        return generation_document(request) if dict(request.words).get("task") else Canned().search(request)

    app = app_of(Canned(picture=made, search=found))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("v", "e")
        await until(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query_one("#in-task", Input).value = "infer"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: settled(app) and not isinstance(app.screen, FormScreen))
        assert app.session.state.command == "plan meta-llama/Llama-3.1-8B --gpus 8xH100 --task infer"
        assert "prefill" in screen_text(app)
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        assert "infer" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, CompareScreen))
        await app.run_action("other_task")
        await until(pilot, lambda: settled(app))
        assert app.session.state.command == "plan meta-llama/Llama-3.1-8B --gpus 8xH100"
        assert "ckpt" in screen_text(app)


async def test_a_question_mark_helps_in_panels_too():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("d")
        await pilot.press("question_mark")
        await until(pilot, lambda: type(app.screen).__name__ == "HelpScreen")
