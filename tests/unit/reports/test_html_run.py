"""`plan report` as HTML: runs, kept plans and kept sweeps; notebooks; bad files in one line."""

import json
from dataclasses import replace

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.from_python import RunResult
from gpu_plan.planner.plan.document import from_json, to_json
from gpu_plan.planner.plan.files import write_text
from gpu_plan.planner.plan.saved import saved_plan, saved_to_json
from gpu_plan.planner.sweep.document import sweep_to_json
from gpu_plan.reports.html.run import JSON_ID
from tests.support.plan_example import llama_on_8xh100, nothing_fits
from tests.support.run_example import MIB, cuda_record, rank_record, run_record, write_folder
from tests.support.sweep_example import grid
from tests.unit.reports.test_html import HOSTILE, Page
from tests.unit.reports.test_run_reports import PEAK, plan


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page_of(name="run.html"):
    with open(name, encoding="utf-8") as file:
        return Page(file.read())


def test_a_runs_page_shows_predicted_and_measured_and_holds_the_records(here, capsys) -> None:
    ranks = (cuda_record(0, PEAK - 4 * MIB), cuda_record(1, PEAK + 4 * MIB))
    write_folder(here, run_record(), plan(), *ranks)
    assert main(["report", "latest", "--format", "html", "-o", "run.html"]) == 0
    assert not capsys.readouterr().out
    page = page_of()
    assert sum(name == "svg" for name, _ in page.elements) == 6, "memory, steps and ranks, each wide and narrow"
    for words in ("SUCCEEDED", "Memory, predicted against measured", "1.100", "Throughput", "Attempts", "44.0 MiB"):
        assert words in page.text
    assert [e for e in page.elements if e[0] == "script"] == [("script", {"type": "application/json", "id": JSON_ID})]
    assert main(["report", "latest", "--json"]) == 0
    assert json.loads(page.scripts[0]) == json.loads(capsys.readouterr().out)
    assert main(["report", "latest", "--format", "html"]) == 0
    assert Page(capsys.readouterr().out).text == page.text, "the same run gives the same page"


def test_a_run_without_plan_steps_or_ranks_has_a_page_too(here) -> None:
    write_folder(here, run_record(attempts=(), status="failed", exit_code=1, message=HOSTILE), None)
    assert main(["report", "latest", "--format", "html", "-o", "run.html"]) == 0
    page = page_of()
    assert "FAILED" in page.text
    assert "svg" not in {name for name, _ in page.elements}


def test_what_a_run_tells_is_escaped(here) -> None:
    rank = rank_record(0, notes=(HOSTILE,), device=HOSTILE)
    record = run_record(script=HOSTILE, script_arguments=(HOSTILE,), message=HOSTILE)
    attempt = replace(
        record.attempts[0], explanation=HOSTILE, changes=(HOSTILE,), deviations=(HOSTILE,), command=("a", HOSTILE)
    )
    write_folder(here, replace(record, attempts=(attempt,)), plan(), rank)
    assert main(["report", "latest", "--format", "html", "-o", "run.html"]) == 0
    page = page_of()
    assert "img" not in {name for name, _ in page.elements}
    assert sum(name == "script" for name, _ in page.elements) == 1
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)


def test_runs_show_themselves_in_notebooks(here) -> None:
    record = run_record()
    assert "SUCCEEDED" in Page(record._repr_html_() or "").text
    ranks = (cuda_record(0, PEAK), cuda_record(1, PEAK))
    result = RunResult(record=record, plan=plan(), folder=here, ranks=ranks)
    text = Page(result._repr_html_() or "").text
    assert "peak allocated" in text
    assert "1.000" in text


@pytest.mark.parametrize("kind", ["document", "saved", "sweep", "nothing fits"])
def test_kept_files_are_shown_in_every_form(kind, here, capsys) -> None:
    texts = {
        "document": to_json(llama_on_8xh100()),
        "saved": saved_to_json(saved_plan(llama_on_8xh100())),
        "sweep": sweep_to_json(grid()),
        "nothing fits": to_json(nothing_fits()),
    }
    write_text("kept.json", texts[kind])
    said = {}
    for form in ("text", "json", "md", "csv", "html"):
        assert main(["report", "kept.json", "--format", form]) == 0
        said[form] = capsys.readouterr().out
        assert "fsdp" in said[form].lower()
    if kind == "document":
        assert from_json(said["json"], "x") == llama_on_8xh100()
    assert main(["report", "kept.json", "--format", "html", "-o", "kept.json"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["report", "kept.json", "--format", "junit"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 2}, "this version reads 1"),
        ({"plans": "none"}, "plans is"),
        ({"cluster": {}}, "cluster.spec"),
    ],
)
def test_files_of_another_version_or_edited_are_one_line(change, says, here, capsys) -> None:
    value = json.loads(to_json(llama_on_8xh100()))
    write_text("kept.json", json.dumps({**value, **change}))
    assert main(["report", "kept.json", "--format", "html", "-o", "page.html"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not (here / "page.html").exists()


def test_a_run_is_no_csv_and_a_missing_package_is_said(here, capsys, monkeypatch) -> None:
    write_folder(here, run_record(), None)
    assert main(["report", "latest", "--format", "csv"]) == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["report", "latest", "--format", "html"]) == 2
    assert "gpu-plan[plots]" in capsys.readouterr().err
