"""Reports of `plan check`: what each format says, escaped, worst first, and read back by those it is for."""

import re
import xml.etree.ElementTree as ET

import junitparser
import pytest

from gpu_plan.planner.regression.result import CheckFigure, CheckReport, Finding, JobResult, report_to_json
from gpu_plan.reports.check.github import render_check_github
from gpu_plan.reports.check.junit import render_check_junit
from gpu_plan.reports.check.markdown import render_check_markdown
from gpu_plan.reports.check.text import render_check_text
from tests.support.github_runner import annotations

GIB = 2**30
HOSTILE = "a\x1b[31mb\r\n::error::c|`d`<script>&]]>%0A,x:y\u202e*_e_*\x00\ud800"


def figure(name, before, now, *, judged=True, unit="bytes"):
    label = name.removesuffix("_bytes").replace("_", " ")
    return CheckFigure(name=name, label=label, unit=unit, baseline=before, current=now, judged=judged)


def finding(level, message, **rest):
    return Finding(level=level, kind=rest.pop("kind", "growth"), message=message, **rest)


def job(name, status, *findings, before=None, now=4 * GIB, **rest):
    figures = (figure("peak_allocated_bytes", before, now), figure("peak_reserved_bytes", before, now))
    figures += (figure("at_peak.activations", before, now, judged=False),)
    return JobResult(
        name=name, file="pyproject.toml", line=7, status=status, figures=figures, findings=findings, **rest
    )


def report(*jobs, root="/home/me/repo"):
    return CheckReport(command="plan check", root=root, versions={"torch": "2.13.0"}, jobs=jobs)


GROWN = job(
    "train",
    "fail",
    finding("error", "peak allocated 3.0 GiB -> 4.0 GiB (+33.3%), beyond fail = '3%'", file="gpt/model.py", line=88),
    finding("notice", "+1.0 GiB activations: `logits.float()` in gpt/model.py:88", kind="culprit", file="gpt/model.py"),
    before=3 * GIB,
    job="train.py on 1xA100: single, micro batch 4, bf16-mixed",
)  # fmt: skip
QUIET = job("quiet", "ok", before=4 * GIB)
WARNED = job("warned", "warn", finding("warning", "peak reserved grew"), before=4 * GIB - 2**20)
BROKEN = job(
    "broken", "error", finding("error", "model.py has no `make`", kind="problem", file="pyproject.toml", line=9)
)
NEW = job("new", "new", finding("notice", "no baseline yet", kind="information"))
ALL = report(QUIET, NEW, WARNED, GROWN, BROKEN)
EVIL = report(
    job(HOSTILE, "fail", finding("error", HOSTILE, file=HOSTILE, line=3), before=GIB, job=HOSTILE),
    root="/home/me/repo",
)


def test_text_is_worst_first_and_leaves_out_what_did_not_change():
    text = render_check_text(ALL)
    jobs = (("ERROR", "broken"), ("FAIL", "train"), ("WARN", "warned"), ("new", "new"), ("ok", "quiet"))
    places = [text.index(f"\n{mark:<6}{name} ") for mark, name in jobs]
    assert places == sorted(places)
    assert text.startswith("plan check: 5 jobs: 1 could not be computed, 1 fails, 1 warns, 1 has no baseline")
    assert "ok    quiet (pyproject.toml:7): peak allocated 4.0 GiB, peak reserved 4.0 GiB" in text
    assert re.search(r"peak allocated  3.0 GiB  ->  4.0 GiB  \+1.0 GiB \(\+33.3%\)", text)
    assert "at the peak: activations +1.0 GiB" in text
    assert "error: gpt/model.py:88: peak allocated 3.0 GiB" in text
    assert text.count("gpt/model.py:88") == 2, "a message that names its line does not get it twice"
    assert all(len(line) <= 100 for line in text.splitlines())
    assert render_check_text(ALL, ascii_only=True).isascii()


def test_nothing_to_check_is_said():
    assert render_check_text(report()) == "plan check: 0 jobs: nothing to check\n"
    assert "0 jobs" in render_check_markdown(report())
    assert render_check_github(report()) == "plan check: 0 jobs: nothing to check\n"


@pytest.mark.parametrize("render", [render_check_text, render_check_markdown, render_check_github, render_check_junit])
def test_no_name_brings_a_control_character_or_a_line_of_its_own(render):
    text = render(EVIL)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    text.encode("utf-8")
    assert not any(line.lstrip().startswith("::error::c") for line in text.splitlines())
    assert render(ALL).endswith("\n")


def test_markdown_escapes_and_tables_stay_tables():
    text = render_check_markdown(EVIL)
    assert "<script>" not in re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text).replace("\\<", "")
    for line in text.splitlines():
        if line.startswith("| "):
            bars = len(re.findall(r"(?<!\\)\|", line))
            assert bars in (5, 6), line
    overview = render_check_markdown(ALL)
    rows = [line for line in overview.splitlines() if line.startswith("| ") and "`" in line]
    assert [re.search("`(.*?)`", row)[1] for row in rows[:5]] == ["broken", "train", "warned", "new", "quiet"]
    assert "4.0 GiB<br>+1.0 GiB (+33.3%)" in rows[1]
    assert "### ✅" not in overview, "unchanged jobs have no section"


def test_annotations_are_read_back_as_they_were_meant():
    found = list(annotations(render_check_github(ALL)))
    assert [level for level, _, _ in found] == ["error", "error", "warning", "notice", "notice"]
    assert found[0] == (
        "error",
        {"file": "pyproject.toml", "line": "9", "title": "plan check: broken"},
        "model.py has no `make`",
    )
    assert found[1][1] == {"file": "gpt/model.py", "line": "88", "title": "plan check: train"}
    (level, properties, message), = annotations(render_check_github(EVIL))  # fmt: skip
    said = r"a\x1b[31mb ::error::c|`d`<script>&]]>%0A,x:y\u202e*_e_*\x00\ud800"
    assert (level, message) == ("error", said)
    assert properties == {"file": said, "line": "3", "title": f"plan check: {said}"}


@pytest.mark.parametrize(
    ("root", "workspace", "file"),
    [
        ("/home/me/repo", "/home/me/repo", "gpt/model.py"),
        ("/home/me/repo/sub", "/home/me/repo", "sub/gpt/model.py"),
        ("/elsewhere", "/home/me/repo", "/elsewhere/gpt/model.py"),
        ("/home/me/repo/sub", None, "gpt/model.py"),
    ],
)
def test_files_of_annotations_are_the_repositorys(root, workspace, file):
    found = next(annotations(render_check_github(report(GROWN, root=root), workspace)))
    assert found[1]["file"] == file


def test_what_github_would_drop_is_folded_into_one():
    many = [finding("error", f"number {index}", file="a.py", line=index) for index in range(1, 15)]
    ten = [finding("warning", f"warned {index}") for index in range(10)]
    found = list(annotations(render_check_github(report(job("many", "fail", *many), job("ten", "warn", *ten)))))
    errors = [entry for entry in found if entry[0] == "error"]
    assert len(errors) == 10
    assert [entry[2] for entry in errors[:9]] == [f"number {index}" for index in range(1, 10)]
    assert errors[9][2] == "5 more in many; the first: number 10"
    assert len(found) == 20


CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testsuite", "properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "failure": set(),
    "error": set(),
    "system-out": set(),
}
ATTRIBUTES = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
        {"name", "tests", "failures", "errors"},
    ),
    "property": ({"name", "value"}, {"name", "value"}),
    "testcase": ({"name", "time", "classname", "group"}, {"name"}),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
}


@pytest.mark.parametrize("which", [ALL, EVIL, report()])
def test_junit_has_the_structure_that_jenkins_validates(which):
    """As src/main/resources/.../junit-10.xsd of Jenkins' xunit plugin has it."""
    for element in ET.fromstring(render_check_junit(which).encode()).iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        known, needed = ATTRIBUTES.get(element.tag, (set(), set()))
        assert needed <= set(element.keys()) <= known


def test_junit_is_read_by_a_junit_reader(tmp_path):
    path = tmp_path / "junit.xml"
    path.write_text(render_check_junit(ALL), encoding="utf-8")
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 1, 1, 0)
    cases = {case.name: case for case in suite}
    (failure,) = cases["train"].result
    assert isinstance(failure, junitparser.Failure)
    assert failure.type == "growth"
    assert failure.message.startswith("peak allocated 3.0 GiB -> 4.0 GiB")
    assert "gpt/model.py: notice: +1.0 GiB activations: `logits.float()`" in failure.text
    assert isinstance(cases["broken"].result[0], junitparser.Error)
    assert not cases["warned"].result
    assert "warning: peak reserved grew" in cases["warned"].system_out
    assert "activations: 4.0 GiB, baseline 3.0 GiB" in cases["train"].system_out
    evil = tmp_path / "evil.xml"
    evil.write_text(render_check_junit(EVIL), encoding="utf-8")
    (case,) = next(iter(junitparser.JUnitXml.fromfile(str(evil))))
    assert case.name == r"a\x1b[31mb ::error::c|`d`<script>&]]>%0A,x:y\u202e*_e_*\x00\ud800"


def test_a_kept_report_is_shown_in_every_format(tmp_path, capsys, monkeypatch):
    from gpu_plan.cli import main

    monkeypatch.setenv("GITHUB_WORKSPACE", "/home/me/repo")
    path = tmp_path / "check.json"
    path.write_text(report_to_json(ALL))
    for name, render in (("text", render_check_text), ("md", render_check_markdown), ("junit", render_check_junit)):
        assert main(["report", str(path), "--format", name]) == 0
        assert capsys.readouterr().out == render(ALL)
    assert main(["report", str(path), "--format", "github"]) == 0
    assert capsys.readouterr().out == render_check_github(ALL, "/home/me/repo")
    assert main(["report", str(path), "--json"]) == 0
    assert capsys.readouterr().out == report_to_json(ALL) + "\n"
    path.write_text("{}")
    assert main(["report", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"plan: error: {path}")


def test_the_step_summary_is_added_to_and_cut_where_github_would_refuse_it(tmp_path, monkeypatch):
    from gpu_plan.commands.report.of_check import tell_github

    target = tmp_path / "summary.md"
    target.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    tell_github(ALL)
    assert target.read_text() == "before\n" + render_check_markdown(ALL)
    target.write_text("")
    tell_github(report(*(job(f"job {index}", "fail", finding("error", "x" * 900)) for index in range(1500))))
    assert len(target.read_bytes()) < 2**20
    assert target.read_text().endswith("(cut: GitHub shows no more)\n")
