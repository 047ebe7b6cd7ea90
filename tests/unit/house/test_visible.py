"""Foreign text stands in what is shown as text: no escape, control or direction mark is obeyed, no markup read."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.cli import main
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.live.screen import ScreenView
from gpu_plan.executor.supervise.events import Event
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.visible import visible
from gpu_plan.reports.clean import no_command
from gpu_plan.reports.tables.as_csv import csv_of
from tests.support.launch_plans import saved
from tests.support.plan_example import llama_on_8xh100

EVIL = "\x1b]0;title\x07\x1b[31m\u202e[red]x[/red]\x9b2J\u200b\ud800"


def steers(text):
    """Characters that a terminal or a reader's eye would obey, but for ends of lines."""
    return [character for character in text if not character.isprintable() and character != "\n"]


@given(st.text(alphabet=st.characters()))
def test_nothing_that_is_shown_steers(text):
    assert not steers(visible(text))
    assert "\n" not in visible(text)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_letters_of_every_script_stay(text):
    assert visible(text) == text


def test_codes_are_written_out():
    assert visible("a\x1b[31mb\u202ec\td\u3000e\ud800") == r"a\x1b[31mb\u202ec\td e\ud800"


def test_every_error_is_shown_so():
    assert str(InputError(f"model {EVIL}")) == r"model \x1b]0;title\x07\x1b[31m\u202e[red]x[/red]\x9b2J\u200b\ud800"


@pytest.mark.parametrize("form", ["text", "md", "csv", "html", "json"])
def test_every_form_of_a_plan_from_a_file(form, tmp_path, capsys):
    document = llama_on_8xh100()
    evil = EVIL.replace("\ud800", "")
    document = replace(
        document,
        command=f"plan {evil}",
        model=replace(document.model, id=evil, class_name=evil),
        warnings=(evil, f"=1+1{evil}"),
    )
    path = tmp_path / "plan.json"
    path.write_text(to_json(document))
    assert main(["report", str(path), "--format", form]) == 0
    out, _ = capsys.readouterr()
    assert not steers(out)
    assert r"\x1b[31m" in out or "\\\\x1b\\[31m" in out or "\\u001b[31m" in out


@pytest.mark.parametrize("words", [("from-config", "c.yaml"), ("from-config", "c.yaml", "--toml"), ("gpus", EVIL[:9])])
def test_keys_of_other_tools_and_words_of_the_command_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text('base_model: x/y\nmicro_batch_size: 1\nsequence_len: 64\n"k\\e[31m\\u202e": 3\n')
    main(list(words))
    out, err = capsys.readouterr()
    assert not steers(out + err)


@pytest.mark.parametrize("view", [PlainView, ScreenView])
def test_notes_of_a_run(view):
    out, err = io.StringIO(), io.StringIO()
    event = Event(kind="note", record=None, text=f"rank 0: {EVIL[:-1]}")
    shown = view(out, err)
    shown(event)
    assert not steers(err.getvalue())
    assert "[red]x[/red]" in err.getvalue()


@pytest.mark.parametrize("line", ["::error::x", "  ::add-mask::a", "##[error]x", "\t##[group]"])
def test_a_log_gives_no_commands(line):
    assert not no_command(line).lstrip().startswith(("::", "##["))
    assert no_command("a ::error:: b") == "a ::error:: b"


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)"])
def test_a_spreadsheet_computes_nothing(cell):
    assert csv_of([{"model": cell, "bytes": -3}]).splitlines()[1].lstrip('"').startswith("'")
    assert csv_of([{"model": "a=b", "bytes": -3}]).splitlines()[1] == "a=b,-3"


@pytest.mark.parametrize(("engine", "strategy"), [("accelerate", "ddp"), ("deepspeed", "zero2"), ("torchrun", "ddp")])
@pytest.mark.parametrize("observed", [True, False])
def test_a_script_is_no_option_of_its_launcher(engine, strategy, observed):
    target = Target(saved=saved(strategy), script=Path("./-x.py"), folder=Path("/run"), observed=observed)
    words = find_engine(engine)(target).command
    assert "./-x.py" in words
    assert "-x.py" not in words


def test_a_run_folders_name_is_text(tmp_path, monkeypatch, capsys):
    """Found by `benchmarks.damage.hostile_inputs`, runs-60: the name of a run that cannot be read was shown raw."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "a\x1b[31m\x1f\u202eb"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{")
    assert main(["runs"]) == 0
    out, _ = capsys.readouterr()
    assert not steers(out)
    assert r"\x1b[31m" in out
