"""The explorer driven by real keys, on hand-made answers."""

from dataclasses import replace

import pytest
from textual.widgets import DataTable, Input, OptionList, Static

from gpu_plan.planner.plan.files import load, load_any
from gpu_plan.tui.choices import CHOICES, STEPPED
from gpu_plan.tui.screens.compare import CompareScreen
from gpu_plan.tui.screens.drill import DrillScreen
from gpu_plan.tui.screens.form import FormScreen
from gpu_plan.tui.screens.leave import LeaveScreen
from gpu_plan.tui.widgets.plans import PlansTable
from tests.support.explorer import LLAMA_STATE, Canned, app_of, screen_text, settled, until
from tests.support.explorer import picture as training
from tests.support.explorer_jobs import GENERATION_STATE, SCRIPT_STATE, generation_document, generation_picture
from tests.support.plan_example import llama_on_8xh100, nothing_fits, other_way

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


async def test_where_nothing_fits_the_nearest_change_is_told():
    others = (other_way("--checkpointing full"), other_way("--peft lora"))
    app = app_of(Canned(document=replace(nothing_fits(), alternatives=others)))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.session.busy is None and not app.session.searching)
        text = screen_text(app)
        assert "OOM" in text
        assert nothing_fits().nearest_change[:40] in text
        assert "or --peft lora: FSDP2, micro batch 2" in text


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


async def test_the_state_starts_from_a_plan_at_hand():
    state = LLAMA_STATE.with_option("seq-len", "8192")
    app = app_of(Canned(), state)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        assert "--seq-len 8192" in screen_text(app)


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


async def test_escape_closes_the_filter_and_shows_every_plan_again():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("slash", *"zero")
        await until(pilot, lambda: app.plans.row_count == 4)
        await pilot.press("escape")
        await until(pilot, lambda: app.plans.row_count == 12)
        assert app.focused is app.plans


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


async def test_a_long_problem_is_told_in_full():
    words = "the model that was asked for is not a hub id, and " + "no such file exists " * 6 + "so write another"
    app = app_of(Canned(refuse=lambda request: words))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.session.problem)
        await until(pilot, lambda: "so write another" in screen_text(app))
        assert "e edits every option" in screen_text(app)


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


async def test_a_question_mark_helps_in_panels_too():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        await pilot.press("d")
        await pilot.press("question_mark")
        await until(pilot, lambda: type(app.screen).__name__ == "HelpScreen")


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
