"""Sweeps: what can vary, what is refused before any work, and how points are shown."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from gpu_plan import cli
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.options.given.named import named, shown_words
from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.sweep.axes import MAX_POINTS, Axis, parse_axes, points
from gpu_plan.planner.sweep.document import SweepDocument, sweep_from_json, sweep_to_json
from gpu_plan.planner.sweep.kinds import scaling_axes, sequence_axes, sequence_values
from gpu_plan.reports.html.sweep import JSON_ID, render_sweep_html
from gpu_plan.reports.sweep.markdown import render_sweep_markdown
from gpu_plan.reports.sweep.text import render_sweep_text
from gpu_plan.reports.sweep.words import grids, number_of, share_used, sweep_rows
from gpu_plan.reports.tables.as_csv import csv_of
from tests.support.plan_example import llama_on_8xh100, nothing_fits
from tests.support.sweep_example import grid
from tests.unit.reports.test_html import HOSTILE, Page


def test_axes_keep_names_values_and_order() -> None:
    axes = parse_axes(["seq-len=2k, 8k", "--zero.reduce_bucket_size=1e8,5e8"])
    assert axes == (
        Axis(name="seq-len", values=("2k", "8k")),
        Axis(name="zero.reduce_bucket_size", values=("1e8", "5e8")),
    )
    assert points(axes) == [("2k", "1e8"), ("2k", "5e8"), ("8k", "1e8"), ("8k", "5e8")]
    assert axes[0].given("2k") == "2k"
    assert [axis.is_setting for axis in axes] == [False, True]


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("fused-loss=true,false", "true", ["--fused-loss"]),
        ("fused-loss=true,false", "false", ["--no-fused-loss"]),
        ("model=a,b", "a", ["a"]),
        ("gpus=1xT4,2xT4", "2xT4", ["--gpus", "2xT4"]),
        ("lora-targets=q_proj,v_proj;all-linear", "q_proj,v_proj", ["--lora-targets", "q_proj,v_proj"]),
    ],
)
def test_every_kind_of_option_is_shown_in_words(axis: str, value: str, words: list[str]) -> None:
    (found,) = parse_axes([axis])
    assert value in found.values
    assert shown_words(named({found.name: found.given(value)})) == words


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["seq-len"], "write OPTION=A,B,C"),
        (["=1,2"], "write OPTION=A,B,C"),
        (["seq_len=1,2"], "Did you mean seq-len"),
        (["output=a,b"], "no option of a job"),
        (["seq-len=1,,2"], "a value is missing"),
        (["seq-len="], "a value is missing"),
        (["seq-len=1,1"], "1 is given twice"),
        (["seq-len=1", "seq-len=2"], "seq-len is given twice"),
        (["fused-loss=yes"], "true,false"),
        (["seq-len=1", "micro-batch=1", "gpus=1xT4", "strategy=ddp"], "at most 3"),
        ([f"seq-len={','.join(map(str, range(1, MAX_POINTS + 2)))}"], f"= {MAX_POINTS + 1} points"),
        (["seq-len=" + ",".join(map(str, range(1, 22))), "micro-batch=" + ",".join(map(str, range(1, 12)))], "21 × 11"),
    ],
)
def test_axes_that_make_no_sense_are_refused(given: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        parse_axes(given)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpus", "8xH100", "--sweep", "seq-len=2k,abc"), "'abc' is not a positive integer"),
        (("--gpus", "8xH100", "--sweep", "strategy=ddp,dpp"), "dpp"),
        (("--sweep", "gpus=8xH100,8xQ100"), "Q100"),
        (("--gpus", "8xH100", "--sweep", "zero.overlap_comm=true,perhaps"), "use true or false"),
        (("--gpus", "8xH100", "--sweep", "lora-rank=8,16"), "needs --peft"),
        (("--gpus", "8xH100", "--seq-len", "2k", "--sweep", "seq-len=2k,4k"), "both given and swept"),
        (("--gpus", "8xH100", "--sweep", "model=a/b,c/d"), "MODEL is both given and swept"),
        (("--sweep", "seq-len=2k,4k"), "which GPUs?"),
        (("--gpus", "8xH100", "--sweep", "seq-len=2k,4k", "--save", "p.json"), "leave out --sweep"),
        (("--gpus", "8xH100", "--sweep", "seq-len=2k,4k", "--snapshot", "p"), "leave out --sweep"),
        (("--gpus", "8xH100", "--sweep", "seq-len=2k,4k", "--plot", "timeline:a.svg"), "of a sweep there are"),
    ],
)
def test_bad_sweeps_are_one_line_before_any_work(words, says, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpu_plan.planner.job.run.run_job", None)  # any work would fail otherwise
    assert cli.main(["EleutherAI/pythia-70m", *words]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert err.startswith("plan: error: ")
    assert err.count("\n") == 1
    assert not out
    assert not list(tmp_path.iterdir())


def test_an_unknown_model_of_a_sweep_is_found_before_the_first_is_planned(monkeypatch, capsys) -> None:
    monkeypatch.setattr("gpu_plan.planner.job.run.run_job", None)
    words = ["--gpus", "1xT4", "--sweep", "model=EleutherAI/pythia-70m,nobody/has-this"]
    assert cli.main(words) == 3
    assert "nobody/has-this" in capsys.readouterr().err


def test_a_sweep_survives_json_and_others_are_refused() -> None:
    assert sweep_from_json(sweep_to_json(grid()), "x") == grid()
    value = json.loads(sweep_to_json(grid()))
    for broken, says in (
        ({**value, "schema_version": 99}, "this version reads"),
        ({**value, "document": "plan"}, "is not a sweep"),
        ({**value, "points": value["points"][:-1]}, "the axes span 6 points, 5 are given"),
    ):
        with pytest.raises(InputError, match=says):
            sweep_from_json(json.dumps(broken), "x")


def test_points_are_found_by_their_values() -> None:
    assert grid().point("32k", "4").command == "plan e"
    assert grid().fits
    with pytest.raises(KeyError):
        grid().point("32k", "5")


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_terminal_shows_a_map_and_every_point(width: int, ascii_only: bool) -> None:
    text = render_sweep_text(grid(), width=width, ascii_only=ascii_only)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert text.isascii() or not ascii_only
    assert lines[0].startswith("Memory used, of capacity")
    for point in grid().points:
        share = share_used(point)
        if share is not None:
            assert f"{share:.0%}" in text
    for word in ("FITS", "TIGHT", "OOM", "No plan", "8 and 32k do not go together", "a warning <b>"):
        assert word in text


def test_colour_adds_only_colour() -> None:
    bare, colored = (render_sweep_text(grid(), width=100, color=color) for color in (False, True))
    assert "\x1b[" in colored
    assert "\x1b" not in bare
    stripped = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines()) + "\n"
    assert stripped == bare


def test_a_third_axis_makes_a_map_for_each_value() -> None:
    document = grid()
    axes = (*document.axes, replace(document.axes[0], name="strategy", values=("fsdp", "zero3")))
    several = tuple(
        replace(point, values=(*point.values, name)) for point in document.points for name in ("fsdp", "zero3")
    )
    maps = grids(replace(document, axes=axes, points=several))
    assert [caption for caption, _ in maps] == ["strategy fsdp", "strategy zero3"]
    for number, (_, rows) in enumerate(maps):
        assert [[point.values for point in row] for row in rows] == [
            [(length, batch, ("fsdp", "zero3")[number]) for batch in ("1", "4", "8")] for length in ("2k", "32k")
        ]


def test_csv_and_frames_hold_every_point_as_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(sweep_rows(grid())))))
    assert [(row["seq-len"], row["micro-batch"]) for row in rows] == [
        (str(length), batch) for length in (2048, 32768) for batch in ("1", "4", "8")
    ]
    assert [row["verdict"] for row in rows] == [point.verdict for point in grid().points]
    first = grid().points[0].plan
    assert first is not None
    assert first.memory is not None
    assert int(rows[0]["device_used_bytes"]) == first.memory.device_used_bytes
    assert rows[5]["device_used_bytes"] == ""
    assert number_of("gpus", "8") == "8"
    assert number_of("strategy", "ddp") == "ddp"


def test_the_page_and_markdown_escape_what_they_show() -> None:
    document = grid()
    bad = tuple(replace(point, model=HOSTILE, reason=point.reason and HOSTILE) for point in document.points)
    hostile = replace(document, points=bad, command=HOSTILE, warnings=(HOSTILE,))
    page = Page(render_sweep_html(hostile))
    assert [e for e in page.elements if e[0] == "script"] == [("script", {"type": "application/json", "id": JSON_ID})]
    assert "img" not in {name for name, _ in page.elements}
    assert sweep_from_json(page.scripts[0], "page") == hostile
    text = render_sweep_markdown(hostile)
    assert "<script" not in text.replace("\\<script", "").split("Made with")[0]
    widths = {line.count(" | ") for line in render_sweep_markdown(document).splitlines() if line.startswith("| ")}
    assert len(widths) == 1


def test_a_page_of_a_sweep_is_the_same_each_time() -> None:
    assert render_sweep_html(grid()) == render_sweep_html(grid())


def test_contradicting_points_are_refused() -> None:
    document = grid()
    with pytest.raises(ValueError, match="without a plan"):
        replace(document.points[0], plan=None)
    with pytest.raises(ValueError, match="needs a reason"):
        replace(document.points[5], reason=None)
    with pytest.raises(ValueError, match="as many values"):
        replace(document, points=(*document.points[:5], replace(document.points[5], values=("32k",))))
    assert isinstance(document, SweepDocument)
    assert dump(document) == sweep_to_json(document)


def test_the_sweeps_behind_plots_follow_the_cluster_and_the_model() -> None:
    document = llama_on_8xh100()
    (axis,) = scaling_axes(document)
    assert axis.values == ("1xH100", "2xH100", "4xH100", "8xH100", "2x8xH100", "4x8xH100")
    lengths, batches = sequence_axes(document)
    assert lengths.values == ("512", "1024", "2048", "4096", "8192", "16384")
    assert batches.values == ("1", "2", "4", "8")
    best = document.best
    assert best is not None
    assert sequence_values(document) == {"strategy": "fsdp", "offload": "none", "checkpointing": "none"}
    assert sequence_values(nothing_fits()) is None
    with pytest.raises(UsageError, match="name some in --gpus"):
        scaling_axes(replace(document, cluster={**document.cluster, "gpu": "cpu"}))
