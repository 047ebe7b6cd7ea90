"""What is shown of a plan: parts sum to the whole, rows say what they must, drawings keep their width."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from gpu_plan.planner.plan.document import StrategyChoice
from gpu_plan.tui.picture import figures
from gpu_plan.tui.picture import lines as drawing
from gpu_plan.tui.picture.host import host_text, moments
from gpu_plan.tui.picture.palette import COLOURS, LETTERS
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.picture.timeline import stacked, timeline_text
from gpu_plan.tui.state import State
from tests.support.explorer import LINES, LLAMA_STATE, columns, picture
from tests.support.explorer_jobs import GENERATION_STATE, generation_picture, with_host
from tests.support.plan_example import llama_on_8xh100

REPLICAS = StrategyChoice(name="replicas", data_parallel=8, micro_batch_size=1, precision="bf16")


def scene(state=LLAMA_STATE, **options):
    document = llama_on_8xh100()
    state = state.following_best(document.best.strategy)
    return Scene(state=state, picture=picture(state.focus_request), current=True, found=document, **options)


@pytest.mark.parametrize("width", [10, 78, 79, 160, 198])
def test_a_bar_is_as_long_as_its_parts_and_never_longer_than_its_width(width):
    memory = llama_on_8xh100().best.memory
    bar = figures.stack(figures.parts_of(memory), memory.capacity_bytes, memory.device_used_high_bytes, width)
    assert sum(part.bytes for part in bar.segments) == memory.device_used_bytes
    used = sum(part.cells for part in bar.segments)
    assert used + bar.maybe <= width
    assert used == round(memory.device_used_bytes * width / max(memory.capacity_bytes, memory.device_used_high_bytes))


def test_a_bar_beyond_the_capacity_shows_where_the_capacity_lies():
    bar = figures.stack([("activations", "activations", 300)], 100, 320, 64)
    assert bar.capacity == 20
    assert bar.segments[0].cells == 60
    assert bar.maybe == 4


def test_rows_mark_the_front_and_say_why_losers_lost():
    document = llama_on_8xh100()
    rows = figures.rows(document, focused=document.best.strategy)
    assert len(rows) == len(document.plans) + len(document.rejected)
    assert [row.focused for row in rows].count(True) == 1
    assert all(row.reason for row in rows if row.candidate.verdict == "no")
    assert not any(row.front for row in rows if row.candidate.verdict == "no")
    front = [row.candidate for row in rows if row.front]
    for plan in document.plans:
        beaten = any(
            other.memory.device_used_bytes <= plan.memory.device_used_bytes
            and other.speed.samples_per_second > plan.speed.samples_per_second
            for other in document.plans
        )
        assert (plan in front) != beaten


def test_rows_are_sorted_and_filtered():
    document = llama_on_8xh100()
    used = [row.candidate.memory.device_used_bytes for row in figures.rows(document, focused=None, sort="memory")[:5]]
    assert used == sorted(used)
    assert {row.title for row in figures.rows(document, focused=None, text="zero fits")} == {"ZeRO-2", "ZeRO-3"}
    assert figures.rows(document, focused=None, rejected_too=False) == figures.rows(document, focused=None)[:5]


def test_each_level_of_the_drill_sums_to_the_one_above():
    whole = sum(line.bytes for line in LINES)
    top = figures.drill(LINES)
    assert sum(branch.bytes for branch in top) == whole
    assert [branch.name for branch in top] == ["activations", "parameters"]
    for branch in top:
        modules = figures.drill(LINES, branch.name)
        assert sum(module.bytes for module in modules) == branch.bytes
        for module in modules:
            assert sum(line.bytes for line in figures.drill(LINES, branch.name, module.name)) == module.bytes
    deepest = figures.drill(LINES, "activations", "model.layers.*.mlp")
    assert deepest[1].detail == "[2, 4096, 14336] bfloat16 · train.py:88"


def test_differences_tell_the_better_from_the_worse():
    one = scene().picture.document
    more = picture(LLAMA_STATE.following_best(llama_on_8xh100().best.strategy).stepped("micro-batch").focus_request)
    found = {line.name: line for line in figures.differences(one, more.document)}
    assert found["micro_batch_size"].before == "4"
    assert found["micro_batch_size"].after == "8"
    assert found["device_used_bytes"].worse is True
    assert found["headroom_bytes"].worse is True
    assert found["at_peak.activations"].change.startswith("+")
    assert figures.differences(one, one) == []


@pytest.mark.parametrize("width", [72, 80, 120, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_no_drawing_is_wider_than_its_widget(width, plain):
    shown = scene(ascii_only=plain, letters=plain)
    long = replace(shown, state=shown.state.with_model("organisation/" + "m" * 200))
    texts = [
        drawing.title_text(long, width),
        drawing.options_text(shown, width, column=False),
        drawing.verdict_text(shown, width),
        drawing.memory_text(shown, width, thick=False),
        host_text(shown, width, every=True),
        timeline_text(columns(), width, 7, capacity=80 * 2**30, letters=plain, ascii_only=plain),
    ]
    for text in texts:
        assert max(cell_len(line) for line in text.plain.splitlines() or [""]) <= width
        if plain:
            assert text.plain.isascii(), text.plain


def test_figures_of_model_states_alone_are_told_as_such():
    shown = scene()
    sums, states = (replace(shown.picture, exact=False, states_only=alone) for alone in (False, True))
    told = [drawing.verdict_text(replace(shown, picture=one), 120).plain.splitlines()[1] for one in (sums, states)]
    assert told[1] == f"{told[0]} by model states alone"
    assert "at least" in told[0]


@pytest.mark.parametrize("width", [72, 80, 120, 200])
@pytest.mark.parametrize("ram", [100, 40, 5, None])
@pytest.mark.parametrize("plain", [False, True])
def test_ram_of_a_node_is_drawn_in_scale_or_told(width, ram, plain):
    shown = scene(ascii_only=plain)
    made = with_host(shown.picture, None if ram is None else ram * 2**30)
    shown = replace(shown, picture=made)
    for every in (True, False):
        lines = host_text(shown, width, every=every).plain.splitlines()
        assert max(map(cell_len, lines)) <= width
        assert not plain or all(line.isascii() for line in lines)
        if ram is None:
            assert "Host RAM: " in lines[0]
            continue
        assert len(lines) == (3 if every else 1)
        ends = {line.index("|" if plain else "┤") for line in lines}
        assert len(ends) == 1, "all moments are in one scale"
        assert f"of {ram}.0 GiB" in lines[0]
        full = "#" if plain else "█"
        if every:
            load, steps, save = (line.count(full) for line in lines)
            assert load == 0
            assert steps > save > 0
            (capacity,) = ends
            assert (lines[1].rindex(full) > capacity) == (ram < 30)
        else:
            assert lines[0].lstrip().startswith("RAM load"), "the moment whose high end is highest"


def test_weights_in_ram_of_a_generation_are_drawn():
    (candidate,) = generation_picture(GENERATION_STATE.following_best(REPLICAS).focus_request).document.plans
    assert moments(candidate) == []
    offloaded = replace(candidate, inference=replace(candidate.inference, cpu_bytes=30 * 2**30))
    (moment,) = moments(offloaded)
    assert (moment.name, moment.bytes) == ("weights", 30 * 2**30)


def test_the_peak_is_marked_over_the_highest_column():
    lines = timeline_text(columns(), 80, 8, capacity=80 * 2**30).plain.splitlines()
    assert len(lines) == 8
    at = lines[0].index("▼")
    tops = {
        cell: next((row for row in range(1, 7) if lines[row][cell : cell + 1].strip(" ╌")), 9) for cell in range(1, 78)
    }
    assert tops[at] == min(tops.values())
    assert "backward" in lines[-1]


def test_colours_are_those_of_the_plots():
    from gpu_plan.reports.plots.style import COLOURS as PLOTTED

    assert COLOURS == PLOTTED
    assert set(LETTERS) == set(COLOURS)
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_a_timeline_drops_no_category_that_stands_in_a_column():
    made = columns()
    for places in (6, 10, 40):
        for level in made.levels:
            stack = stacked(made.categories, level, places, max(map(sum, made.levels)))
            standing = [key for key, size in zip(made.categories, level, strict=True) if size]
            assert len(stack) <= places
            if len(standing) <= len(stack):
                assert list(dict.fromkeys(stack)) == standing, "each once, lowest first"
    assert stacked(("a", "b", "c"), (1, 2, 97), 4, 100) == ["a", "b", "c", "c"]
    assert stacked(("a", "b", "c"), (1, 2, 97), 2, 100) == ["b", "c"], "the largest where there are too few places"
    assert stacked(("a", "b"), (0, 0), 4, 100) == []
    text = timeline_text(made, 80, 7, capacity=80 * 2**30)
    colours = {str(span.style).partition(" on ") for span in text.spans}
    drawn = {colour for one, _, two in colours for colour in (one, two)}
    assert {COLOURS[key] for key in made.categories} <= drawn


def test_defaults_that_are_known_stand_before_anything_is_in_view():
    early = Scene(state=State(model="meta-llama/Llama-3.1-8B", gpus="8xH100"))
    known = {name: early.value(name) for name in early.state.menu.shown}
    assert known["precision"] == "bf16-mixed"
    assert (known["optimizer"], known["attention"], known["peft"], known["fused-loss"]) == (
        "adamw",
        "sdpa",
        "none",
        "false",
    )
    assert (known["seq-len"], known["strategy"], known["lora-rank"]) == ("-", "-", "-"), (
        "the model's, searched, of none"
    )
    turing = Scene(state=State(model="meta-llama/Llama-3.1-8B", gpus="1xT4", given=(("peft", "lora"),)))
    assert (turing.value("precision"), turing.value("lora-rank")) == ("fp16-mixed", "16")
    assert Scene(state=State(model="x", gpus="no such")).value("precision") == "-"
