"""Whole reports: golden files, widths, characters, colour and hostile names.

After a wanted change: UPDATE_GOLDEN=1 python -m pytest tests/unit/reports/test_reports_render.py
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpu_plan.planner.plan.document import Candidate, PlanDocument, TensorLine, from_json
from gpu_plan.reports.plan.as_json import render_json
from gpu_plan.reports.plan.markdown import render_markdown
from gpu_plan.reports.plan.terminal import render_terminal, wants_color
from tests.support.plan_example import H100X8, llama_on_8xh100, nothing_fits

GOLDEN = Path(__file__).parents[2] / "golden"
HOSTILE = "x\x1b[2J[bold]y[/bold] | `z` <b>\n# head\u202e ![i](u)"

RENDERED: dict[str, Callable[[], str]] = {
    "report_80.txt": lambda: render_terminal(llama_on_8xh100(), width=80, color=False),
    "report_80_ascii.txt": lambda: render_terminal(
        llama_on_8xh100(), width=80, color=False, ascii_only=True, explain=True
    ),
    "report_120.txt": lambda: render_terminal(llama_on_8xh100(), width=120, color=False, explain=True),
    "report_80_color.txt": lambda: render_terminal(_tight(), width=80, color=True),
    "report_nothing_fits_80.txt": lambda: render_terminal(nothing_fits(), width=80, color=False),
    "report.md": lambda: render_markdown(llama_on_8xh100(), explain=True),
    "report_nothing_fits.md": lambda: render_markdown(nothing_fits()),
}


def _tight() -> PlanDocument:
    document = llama_on_8xh100()
    best = document.plans[0]
    assert best.memory is not None
    figures = replace(best.memory, capacity_bytes=best.memory.device_used_bytes + 1)
    return replace(document, plans=(replace(best, verdict=figures.verdict, memory=figures),))


@pytest.mark.parametrize("name", RENDERED)
def test_golden(name: str) -> None:
    path, text = GOLDEN / name, RENDERED[name]()
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 81, 99, 100, 137, 200])
@pytest.mark.parametrize("document", [llama_on_8xh100(), nothing_fits(), _tight()], ids=["fits", "no", "tight"])
def test_no_line_is_wider_than_the_page(document: PlanDocument, width: int) -> None:
    text = render_terminal(document, width=width, color=False, explain=True)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert not re.search(r"\s$", text[:-1])
    assert text.endswith("\n")
    assert "…" not in text


@pytest.mark.parametrize(("asked", "given"), [(10, 80), (500, 200)])
def test_widths_are_bounded(asked: int, given: int) -> None:
    document = llama_on_8xh100()
    assert render_terminal(document, width=asked, color=False) == render_terminal(document, width=given, color=False)


def test_verdicts_stand_in_words() -> None:
    for document, word in ((llama_on_8xh100(), "FITS"), (_tight(), "TIGHT"), (nothing_fits(), "OOM")):
        assert re.search(rf"^{word} ", render_terminal(document, width=80, color=False), re.MULTILINE)
        assert f"## {word}: " in render_markdown(document)


def test_colour_adds_only_colour() -> None:
    bare = render_terminal(llama_on_8xh100(), width=80, color=False, explain=True)
    colored = render_terminal(llama_on_8xh100(), width=80, color=True, explain=True)
    assert "\x1b[" in colored
    assert "\x1b" not in bare
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == bare.splitlines()


@pytest.mark.parametrize(
    ("environ", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_is_asked_of_the_environment(environ: dict[str, str], terminal: bool, wanted: bool) -> None:
    assert wants_color(environ, terminal) is wanted


def test_the_environment_decides_in_render(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in render_terminal(nothing_fits(), width=80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in render_terminal(nothing_fits(), width=80)


def _hostile() -> PlanDocument:
    """Every text that comes from outside is HOSTILE."""
    document = llama_on_8xh100()
    line = TensorLine(
        bytes=5, category="inputs", module=HOSTILE, operator=HOSTILE, shape=(1,), dtype=HOSTILE, phase=HOSTILE
    )

    def spoilt(candidate: Candidate) -> Candidate:
        choice = replace(candidate.strategy, name=HOSTILE, offload=HOSTILE, checkpointing=HOSTILE)
        figures = candidate.memory and replace(candidate.memory, phase_of_peak=HOSTILE)
        reason = None if candidate.reason is None else HOSTILE
        return replace(candidate, strategy=choice, memory=figures, reason=reason, command=HOSTILE, explain=(line,))

    return replace(
        document,
        command=HOSTILE,
        created_with={HOSTILE: HOSTILE},
        model=replace(document.model, id=HOSTILE, class_name=HOSTILE),
        cluster={**H100X8, "spec": HOSTILE, "gpu_name": HOSTILE, "intra_node": {"link": HOSTILE}},
        workload={**document.workload, "task": HOSTILE, "seq_len": HOSTILE, "optimizer": HOSTILE},
        plans=tuple(map(spoilt, document.plans)),
        rejected=tuple(map(spoilt, document.rejected)),
        assumptions=tuple(replace(assumption, text=HOSTILE) for assumption in document.assumptions),
        warnings=(HOSTILE,),
        nearest_change=HOSTILE,
    )


def test_hostile_names_in_a_terminal() -> None:
    text = render_terminal(_hostile(), width=120, color=False, explain=True)
    assert "[bold]y[/bold]" in text  # shown as it is, not taken as markup
    assert all(line.isprintable() for line in text.splitlines())
    colored = render_terminal(_hostile(), width=120, color=True, explain=True)
    assert set(re.findall(r"\x1b\[[0-9;]*(.)", colored)) == {"m"}
    assert render_terminal(_hostile(), width=80, color=False, ascii_only=True, explain=True).isascii()


def test_hostile_names_in_markdown() -> None:
    text = render_markdown(_hostile(), explain=True)
    assert all(line.isprintable() for line in text.splitlines())
    prose = re.sub(r"```+bash\n.*?\n```+", "", text, flags=re.DOTALL)
    without_code = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", prose)
    assert not re.search(r"(?<!\\)[<`]", without_code)
    assert "![i]" not in without_code
    rows = [line for line in prose.splitlines() if line.startswith("|")]
    tables = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert tables == {4, 9, 7}  # memory, ranking, tensors: no cell was broken in two
    assert len(re.findall(r"^#", prose, re.MULTILINE)) == len(re.findall(r"^##? ", prose, re.MULTILINE))
    assert "\n# head" not in text


def test_long_names_do_not_break_the_page() -> None:
    document = llama_on_8xh100()
    long = replace(document, model=replace(document.model, id="organisation/" + "n" * 300), warnings=("模" * 200,))
    text = render_terminal(long, width=80, color=False)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert text.count("n" * 20) > 10
    assert text.count("模") == 200


def test_offload_and_degrees_fit_80_columns() -> None:
    document = llama_on_8xh100()
    choice = replace(
        document.plans[1].strategy, offload="optimizer", tensor_parallel=2, gradient_accumulation_steps=512
    )
    wide = replace(document.plans[1], strategy=choice)
    text = render_terminal(replace(document, plans=(document.plans[0], wide)), width=80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    row = next(line for line in text.splitlines() if "2×512" in line)
    assert row.split()[-1] == "FITS"


def test_top_limits_plans_and_losers() -> None:
    text = render_terminal(llama_on_8xh100(), width=80, color=False, top=2)
    assert text.count("FITS") == 2
    assert "3 more with --top 5" in text
    assert "2 more kinds with --top 4" in text


def test_a_document_without_any_figures() -> None:
    bare = replace(llama_on_8xh100(), plans=(), rejected=(), assumptions=(), warnings=())
    assert "OOM  no plan fits this cluster" in render_terminal(bare, width=80, color=False)
    assert "## OOM: no plan fits this cluster" in render_markdown(bare)


def test_json_report_is_the_document() -> None:
    document = llama_on_8xh100()
    assert from_json(render_json(document), "stdout") == document
