"""Plots of plans, sweeps and runs: what they show, and what is refused."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from gpu_plan import cli
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.units import GIB
from gpu_plan.reports.plots.memory import breakdown, name_points, pareto, shown_candidates
from gpu_plan.reports.plots.style import as_file, inline_svg, shortened
from gpu_plan.reports.plots.sweep import curves, heatmap, positions
from gpu_plan.reports.plots.targets import KINDS, read_target
from tests.support.plan_example import llama_on_8xh100, nothing_fits
from tests.support.sample import sample
from tests.support.sweep_example import grid


def test_bars_are_as_long_as_the_memory_they_show() -> None:
    document = llama_on_8xh100()
    shown = shown_candidates(document, 5)
    (axes,) = breakdown(document).axes
    by_row: dict[int, float] = {}
    for bar in axes.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        by_row[row] = by_row.get(row, 0.0) + bar.get_width()
    assert len(by_row) == len(shown)
    for row, candidate in enumerate(shown):
        assert candidate.memory is not None
        assert by_row[row] == pytest.approx(candidate.memory.device_used_bytes / GIB)
    assert [rejected for rejected in shown if rejected.verdict == "no"], "strategies without any plan are shown too"


@pytest.mark.parametrize("width", [9.6, 4.3])
@pytest.mark.parametrize("make", [llama_on_8xh100, nothing_fits])
def test_every_document_can_be_drawn(make, width) -> None:
    for figure in (breakdown(make(), width), pareto(make(), width), breakdown(make(), width, titled=True)):
        assert as_file(figure, "svg").startswith(b"<?xml")


def test_a_document_without_figures_is_drawn_as_such() -> None:
    document = nothing_fits()
    bare = replace(document, rejected=tuple(replace(one, memory=None, speed=None) for one in document.rejected))
    for figure in (breakdown(bare), pareto(bare)):
        assert "nothing was evaluated in full" in [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("form", sample(["png", "svg", "pdf"], kept=["svg"]))
def test_files_are_the_same_each_time(form: str) -> None:
    document = llama_on_8xh100()
    assert as_file(breakdown(document), form) == as_file(breakdown(document), form)


def test_names_of_plans_that_lie_together_cross_no_other_one() -> None:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(9.6, 3.4)).subplots()
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 5000)
    named = [((10.0 + 2 * one, 3000.0 + 10 * one), f"a plan of some length, number {one}") for one in range(4)]
    name_points(axes, named)
    renderer = axes.figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert len(boxes) == len(named)
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_a_part_of_a_page_takes_its_colours_and_scales() -> None:
    svg = inline_svg(breakdown(llama_on_8xh100()), "n", "A <title>")
    root = ET.fromstring(svg)
    assert root.attrib["viewBox"].count(" ") == 3
    assert "width" not in root.attrib
    assert root[0].text == "A <title>"
    assert "var(--ink)" in svg
    assert "#222222" not in svg
    assert "metadata" not in svg


def test_points_of_a_sweep_are_cells_with_words_for_every_verdict() -> None:
    figure = heatmap(grid())
    (axes,) = figure.axes
    words = [text.get_text() for text in axes.texts]
    assert len(axes.patches) == len(grid().points)
    assert any("TIGHT" in text for text in words)
    assert any("OOM" in text for text in words)
    assert any("refused" in text for text in words)


def test_curves_leave_out_speeds_of_what_does_not_fit() -> None:
    memory, speed = curves(grid()).axes
    drawn = {line.get_label(): len(line.get_xdata()) for line in speed.lines if not line.get_label().startswith("_")}
    fitting = {}
    for point in grid().points:
        if point.verdict in ("fits", "tight"):
            label = point.values[1]
            fitting[label] = fitting.get(label, 0) + 1
    assert {name: count for name, count in drawn.items() if count} == fitting
    assert memory.get_ylabel() == "GiB used on the worst rank"


def test_values_become_positions_where_they_are_numbers() -> None:
    assert positions(["512", "2k", "8K"]) == [512, 2048, 8192]
    assert positions(["1xH100", "8xH100", "2x8xH100"]) == [1, 8, 16]
    assert positions(["fsdp", "zero3"]) is None
    assert positions(["1", "1.0"]) is None


def test_titles_keep_their_ends() -> None:
    assert shortened("a" * 20, 20) == "a" * 20
    assert shortened("a" * 30 + "b" * 30, 21) == "a" * 9 + " … " + "b" * 9


@pytest.mark.parametrize(
    ("text", "sweeping", "kind", "path"),
    [
        ("a.svg", False, "timeline", "a.svg"),
        ("pareto:a.svg", False, "pareto", "a.svg"),
        ("./odd:name.png", False, "timeline", "./odd:name.png"),
        ("a.png", True, "heatmap", "a.png"),
        ("curve:x/y.pdf", True, "curve", "x/y.pdf"),
    ],
)
def test_kinds_stand_before_the_file(text: str, sweeping: bool, kind: str, path: str) -> None:
    target = read_target(text, sweeping=sweeping)
    assert (target.kind, target.path) == (kind, path)


@pytest.mark.parametrize(
    ("text", "sweeping", "says"),
    [
        ("paretto:a.svg", False, "Did you mean pareto"),
        ("pareto:a.jpg", False, r"ends in \.png, \.svg or \.pdf"),
        ("pareto:a.csv", False, "--format csv"),
        ("pareto:", False, "name a file"),
        ("pareto:a.svg", True, "of a sweep there are heatmap, curve"),
        ("heatmap:a.svg", False, "without --sweep there are timeline"),
    ],
)
def test_what_cannot_be_drawn_is_refused(text: str, sweeping: bool, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_target(text, sweeping=sweeping)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "timeline"])
def test_without_matplotlib_the_word_is_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"gpu-plan\[plots\]"):
        read_target(f"{kind}:a.svg", sweeping=kind in ("heatmap", "curve"))


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "html", "-o", "there.html"),
        ("--plot", "pareto:there.html"),
        ("--plot", "nosuch:a.svg"),
        ("--plot", "pareto:a.svg", "--plot", "breakdown:a.svg"),
        ("--plot", "pareto:nowhere/a.svg"),
        ("--format", "html", "-o", "."),
    ],
)
def test_bad_targets_are_one_line_and_nothing_is_written(words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.html").write_text("mine")
    assert cli.main(["EleutherAI/pythia-70m", "--gpus", "1xT4", *words]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("plan: error: ")
    assert err.count("\n") == 1
    assert not out
    assert [path.name for path in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


@pytest.mark.parametrize(("form", "package"), [("html", "plots"), ("csv", "frames")])
def test_a_missing_package_is_said_before_any_work(form, package, monkeypatch, capsys) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("gpu_plan.commands.job.asking.find_plans", None)
    assert cli.main(["EleutherAI/pythia-70m", "--gpus", "1xT4", "--format", form]) == 2
    err = capsys.readouterr().err
    assert f"gpu-plan[{package}]" in err
    assert err.count("\n") == 1
