"""The HTML page of a plan: complete, self-contained, escaped, the same each time."""

import functools
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.document import Assumption, Candidate, DevicePrice, PlanDocument, from_json, to_json
from gpu_plan.reports.html.notebook import plan_fragment, scoped
from gpu_plan.reports.html.render import JSON_ID, render_html
from gpu_plan.reports.html.speed import speed_section
from gpu_plan.reports.html.style import CSS
from gpu_plan.reports.markup import Html, embedded_json, tag
from gpu_plan.reports.plan import cost
from gpu_plan.reports.plan.pareto import pareto_front
from tests.support.plan_example import llama_on_8xh100, nothing_fits

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=x\x1b[2J\u202e &amp; <b>"
PAGES = {"fits": llama_on_8xh100, "nothing fits": nothing_fits}
VOID = {"meta", "br", "col", "link"}


class Page(html.parser.HTMLParser):
    """Elements, attributes and text of a page; every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def hostile() -> PlanDocument:
    """A document whose every text is an attack."""
    document = llama_on_8xh100()
    best = document.plans[0]
    assert best.memory is not None
    memory = replace(
        best.memory, uncertain=tuple(replace(t, name=HOSTILE, source=HOSTILE) for t in best.memory.uncertain)
    )
    plans = (replace(best, command=HOSTILE, memory=memory), *document.plans[1:])
    return replace(
        document,
        command=HOSTILE,
        created_with={HOSTILE: HOSTILE},
        model=replace(document.model, id=HOSTILE, class_name=HOSTILE),
        cluster={**document.cluster, "spec": HOSTILE, "gpu_name": HOSTILE},
        plans=plans,
        rejected=tuple(replace(rejected, reason=HOSTILE) for rejected in document.rejected),
        assumptions=(Assumption(text=HOSTILE, basis="assumed"),),
        warnings=(HOSTILE,),
        nearest_change=HOSTILE,
        prices=(DevicePrice(usd_per_hour=2.0, provider=HOSTILE, date=HOSTILE, source=HOSTILE),),
    )


@functools.cache
def rendered(name: str) -> str:
    """The page of a document, drawn once for all tests."""
    return render_html(hostile() if name == "hostile" else PAGES[name]())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_says_the_verdict_first_and_needs_nothing_from_elsewhere(name: str) -> None:
    document, text = PAGES[name](), rendered(name)
    page = Page(text)
    body = page.text[page.text.index("}@page") :]  # behind the style sheet
    assert body.index("FITS" if document.plans else "OOM") < body.index(document.model.id)
    for _, attributes in page.elements:
        for key, value in attributes.items():
            assert key not in ("src", "srcset", "onload", "onerror", "onclick")
            if key in ("href", "xlink:href"):
                assert value is not None
                assert value.startswith("#")
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert [e for e in page.elements if e[0] == "script"] == [("script", {"type": "application/json", "id": JSON_ID})]
    assert sum(name == "svg" for name, _ in page.elements) >= 2
    for words in ("Memory", "Alternatives", "What this rests on", "Commands"):
        assert words in page.text


def test_the_same_document_gives_the_same_bytes() -> None:
    assert render_html(llama_on_8xh100()) == rendered("fits")


def test_ids_are_unique_and_references_meet_them() -> None:
    text = rendered("fits")
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]*)', text))
    assert referred <= set(ids)


def test_the_embedded_json_is_the_document() -> None:
    for name, document in {"fits": llama_on_8xh100(), "nothing fits": nothing_fits(), "hostile": hostile()}.items():
        (script,) = Page(rendered(name)).scripts
        assert from_json(script, "page") == document


def test_nothing_hostile_leaves_its_text() -> None:
    text = rendered("hostile")
    page = Page(text)
    assert {name for name, _ in page.elements} & {"img", "b>"} == set()
    assert sum(name == "script" for name, _ in page.elements) == 1
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "</script><script>alert(1)</script>" in page.text, "what was hostile is shown as text"


def test_a_long_name_is_shown_whole_and_shortened_in_plots() -> None:
    document = llama_on_8xh100()
    named = replace(document, model=replace(document.model, id="o/" + "very-long-" * 20))
    text = render_html(named)
    assert named.model.id in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert max((len(words) for words in re.findall(r"<text[^>]*>([^<]*)</text>", svg)), default=0) < 90


def test_prices_become_costs_and_none_are_invented() -> None:
    document = llama_on_8xh100()
    best = document.best
    assert best is not None
    assert best.speed is not None
    assert not cost.cost_lines(document, best)
    assert "No price is known" in rendered("fits")
    priced = replace(document, prices=(DevicePrice(usd_per_hour=2.5, provider="p", date="d", source="s"),))
    (line,) = cost.cost_lines(priced, best)
    tokens = best.speed.tokens_per_second_per_gpu
    assert tokens is not None
    assert line.job_hour == 20.0
    assert line.per_unit == pytest.approx(1e9 / (tokens * 8) / 3600 * 20.0)
    assert line.low is not None
    assert line.high is not None
    assert line.per_unit is not None
    assert line.low < line.per_unit < line.high
    assert cost.dollars(line.per_unit) in str(speed_section(priced))


def test_the_pareto_front_is_what_no_plan_beats() -> None:
    plans = [plan for plan in llama_on_8xh100().plans if plan.memory and plan.speed]

    def beats(one: Candidate, other: Candidate) -> bool:
        assert one.memory and other.memory and one.speed and other.speed  # noqa: PT018
        no_worse = (
            one.memory.device_used_bytes <= other.memory.device_used_bytes
            and one.speed.samples_per_second >= other.speed.samples_per_second
        )
        return no_worse and one != other

    front = pareto_front(plans)
    assert front
    for plan in plans:
        assert (plan in front) == (not any(beats(other, plan) for other in plans))


def test_a_notebook_shows_a_document_without_styling_the_rest() -> None:
    document = llama_on_8xh100()
    shown = document._repr_html_()
    assert shown == plan_fragment(document)
    assert shown is not None
    assert document.model.id in Page(shown).text
    rules = re.findall(r"([^{}@]+)\{[^{}]*\}", scoped(CSS, ".x"))
    selectors = [one.strip() for rule in rules for one in rule.split(",")]
    assert len(selectors) > 40
    assert all(one.startswith(".x") for one in selectors)
    wins_over_two_classes = ".gpu-plan.gpu-plan.gpu-plan"  # as Jupyter's own rules for table cells name
    assert f"{wins_over_two_classes} td" in shown
    assert f"{wins_over_two_classes} dt" in shown


def test_a_notebook_without_reports_shows_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gpu_plan.reports.html.notebook", None)
    assert llama_on_8xh100()._repr_html_() is None


def test_without_matplotlib_a_page_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"gpu-plan\[plots\]"):
        render_html(llama_on_8xh100())
    shown = plan_fragment(llama_on_8xh100())
    assert "<svg" not in shown, "a notebook shows the rest"
    assert "FITS" in shown


def test_markup_escapes_strings_and_keeps_markup() -> None:
    assert tag("p", "<i>", Html("<br>"), 3, None, ["&", tag("b", "x")], class_='a"b') == (
        '<p class="a&quot;b">&lt;i&gt;<br>3&amp;<b>x</b></p>'
    )
    assert json.loads(embedded_json('{"a": "</script>&<!--"}', "i").split(">", 1)[1].removesuffix("</script>")) == {
        "a": "</script>&<!--"
    }
    with pytest.raises(ValueError, match="not an element"):
        tag("a b", "x")


def test_json_survives_prices(tmp_path: Path) -> None:
    document = replace(
        llama_on_8xh100(), prices=(DevicePrice(usd_per_hour=2.5, provider="p", date="2026-01-01", source="s"),)
    )
    assert from_json(to_json(document), "x") == document
