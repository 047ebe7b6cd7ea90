"""What is said on stderr while a job is searched: model states first, then each kind of plan."""

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from gpu_plan.cli import main
from gpu_plan.commands.job.progress.choice import view_for
from gpu_plan.commands.job.progress.lines import LinesView
from gpu_plan.commands.job.progress.screen import ScreenView
from gpu_plan.commands.job.progress.view import View
from gpu_plan.commands.job.progress.words import Pace, states_words
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.search.underway.watch import Watcher
from gpu_plan.planner.trace.provider import TraceProvider
from tests.unit.search.test_one_search import GIB, judged

if TYPE_CHECKING:
    from gpu_plan.planner.search.judgement import Judgement

LLAMA = "meta-llama/Llama-3.1-8B"


def request(**more: object) -> Request:
    given = {"model": LLAMA, "gpus": "8xH100", "words": (), "settings": (), "pinned": False, "explain": False}
    rest = {"trust_remote_code": False, "revision": None, "use_cache": False, "command": ""}
    return Request(**{**given, **rest, **more})  # type: ignore[arg-type]


class Told(Watcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.parameters = 0
        self.states: list[Judgement] = []
        self.of = self.turned = 0
        self.reasons: list[str] = []
        self.best: list[Judgement] = []
        self.order: list[str] = []

    def model(self, spec) -> None:
        self.order.append("model")
        self.parameters = spec.num_parameters

    def decided(self, judged) -> None:
        self.order.append("decided")
        self.states = list(judged)

    def turns(self, words, place, of) -> None:
        assert place == self.turned
        self.turned, self.of = place + 1, of

    def judged(self, best, reason) -> None:
        self.best += [] if best is None else [best]
        self.reasons += [] if reason is None else [reason]

    def advises(self) -> None:
        self.order.append("advises")


@pytest.fixture(scope="module")
def told() -> tuple[Told, object]:
    watch = Told()
    words = (("micro-batch", "2"), ("checkpointing", "full"))
    document = run_job(request(words=words, suggest=False), lambda _: None, Openers(), watch).document
    return watch, document


def test_states_alone_decide_what_the_report_says_of_them(told):
    watch, document = told
    assert watch.order == ["model", "decided", "advises"]
    assert watch.parameters == 8_030_261_248
    cannot = {one.title: one.least_bytes for one in watch.states if one.verdict == "no"}
    by_states = [lost for lost in document.rejected if "model states alone" in lost.reason]
    assert {lost.reason.partition(":")[0] for lost in by_states} == set(cannot) == {"DDP"}
    assert all(one.states_only for one in watch.states)
    # A lower bound: no plan of a title that leaves room takes less.
    least = {one.title: one.least_bytes for one in watch.states}
    assert all(least[plan.title] <= plan.least_bytes for plan in watch.best if plan.title in least)


def test_every_kind_is_turned_to_and_told(told):
    watch, document = told
    assert watch.turned == watch.of
    assert len(watch.best) == len([plan for plan in watch.best if plan.verdict != "no"]) > 5
    assert len(watch.reasons) >= len(document.rejected) >= 1


def clock_of(*seconds: float) -> Callable[[], float]:
    ticking: Iterator[float] = iter(seconds)
    last = [0.0]

    def clock() -> float:
        last[0] = next(ticking, last[0])
        return last[0]

    return clock


def test_the_pace_counts_from_the_first_kind_that_took_its_time():
    pace = Pace(clock_of(0, 10, 10, 12, 12))
    assert pace.words == ""
    pace.of = 6
    pace.judged(0)
    assert pace.words == "1 of 6 kinds of plans, 10 s"
    pace.done = 2
    assert pace.words == "2 of 6 kinds of plans, 12 s, some 8 s left at this pace"


def test_states_in_words_name_the_least_first():
    room = [judged(size * GIB, name=f"plan {size}") for size in (3, 2)]
    lost = judged(40 * GIB, name="plan 40")
    assert states_words([lost, *room]) == [
        "model states alone, of 16.0 GiB:",
        "  cannot fit: plan 40 40.0",
        "  leave room: plan 2 2.0, plan 3 3.0",
    ]
    assert states_words([]) == []


def lines_view() -> tuple[LinesView, list[str]]:
    said: list[str] = []
    return LinesView(write=said.append, clock=clock_of(0, 3)), said


def test_lines_say_nothing_of_what_is_not_waited_for():
    view, said = lines_view()
    view.decided([judged(GIB)])
    view.turns("one", 0, 1)
    view.judged(judged(GIB), None)
    view.advises()
    assert said == []


def test_lines_say_nothing_before_the_model_is_known():
    """An input that makes no sense gets one line, its error."""
    view, said = lines_view()
    view.tracing("tracing")
    assert said == []
    view.decided([])
    assert said == ["tracing ..."]


def test_lines_tell_states_then_kinds():
    view, said = lines_view()
    view.decided([judged(40 * GIB)])
    view.tracing("tracing")
    view.turns("one", 0, 3)
    view.judged(judged(GIB, rate=7.5), None)
    view.turns("two", 1, 3)
    view.judged(None, "two needs more")
    view.turns("three", 2, 3)
    view.judged(None, None)
    view.advises()
    assert said == [
        "model states alone, of 16.0 GiB:",
        "  cannot fit: all of it 40.0",
        "tracing ...",
        "1 of 3 kinds of plans, 3 s: fits: all of it needs 1.0 GiB, has 16.0; 7.5 samples a second",
        "2 of 3 kinds of plans, 3 s: does not fit: two needs more",
        "3 of 3 kinds of plans, 3 s; what else could be done ...",
    ]


def shown(view: ScreenView) -> str:
    console = Console(file=io.StringIO(), width=100, record=True, force_terminal=False)
    console.print(view.picture())
    return console.export_text()


def test_the_picture_has_states_a_table_and_how_far_it_is(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with ScreenView(clock=clock_of(0), ascii_only=True) as view:
        view.decided([judged(40 * GIB, name="[red]hostile")])
        view.tracing("tracing")
        for place, one in enumerate((judged(GIB, name="slow"), judged(GIB, name="fast", rate=2.0))):
            view.turns("a kind", place, 3)
            view.judged(one, None)
        view.turns("the last", 2, 3)
        view.judged(None, "too large")
        picture = shown(view)
    lines = [line.rstrip() for line in picture.splitlines()]
    assert "  cannot fit: [red]hostile 40.0" in lines
    assert [line.split()[1] for line in lines if line.startswith("fits")] == ["fast", "slow"]
    assert "1 kind does not fit" in lines
    assert lines[-1] == "3 of 3 kinds of plans, 0 s: the last"


@pytest.mark.parametrize(
    ("quiet", "terminal", "term", "kind"),
    [
        (True, True, "xterm", View),
        (False, True, "xterm", ScreenView),
        (False, True, "dumb", LinesView),
        (False, False, "xterm", LinesView),
    ],
)
def test_which_view(monkeypatch, quiet, terminal, term, kind):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", term)
    assert type(view_for(argparse.Namespace(quiet=quiet, ascii=False))) is kind


def traced(monkeypatch, tmp_path, *words: str) -> int:
    """Runs `plan` where shipped traces are looked up only once something slow was said to begin."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    lookup = TraceProvider.trace

    def slowly(provider, variant, micro_batch):
        provider.note("tracing")
        return lookup(provider, variant, micro_batch)

    monkeypatch.setattr(TraceProvider, "trace", slowly)
    return main(
        [LLAMA, "--gpus", "8xH100", "--strategy", "fsdp", "--checkpointing", "full", "--micro-batch", "2", *words]
    )


def test_stdout_is_the_report_and_nothing_else(monkeypatch, capsys, tmp_path):
    assert traced(monkeypatch, tmp_path / "1", "--json") == 0
    said = capsys.readouterr()
    assert traced(monkeypatch, tmp_path / "2", "--json", "--quiet") == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    first, second = json.loads(said.out), json.loads(quiet.out)
    assert first.pop("command") != second.pop("command")
    assert first == second
    lines = said.err.splitlines()
    assert lines[0] == f"plan: {LLAMA} has 8,030,261,248 parameters"
    assert lines[3] == "plan: tracing ..."
    assert lines[-1].endswith("what else could be done ...")
    assert traced(monkeypatch, tmp_path / "1", "--json") == 0
    assert capsys.readouterr().err == "", "a kept plan is not waited for"


def test_ctrl_c_tells_what_states_decided_of_what_was_not_looked_at(monkeypatch, capsys, tmp_path):
    def stopped(provider, variant, micro_batch):
        raise KeyboardInterrupt

    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    monkeypatch.setattr(TraceProvider, "trace", stopped)
    assert main([LLAMA, "--gpus", "2xA100"]) == 130
    lines = capsys.readouterr().err.splitlines()
    assert "known so far" in lines[0]
    assert any(line.startswith("plan: does not fit: ZeRO-2: model states alone need") for line in lines)


def test_ctrl_c_while_alternatives_are_sought_tells_the_plans(monkeypatch, capsys, tmp_path):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    monkeypatch.setattr("gpu_plan.planner.job.answer._else", stopped)
    assert main([LLAMA, "--gpus", "8xH100", "--strategy", "fsdp", "--pin", "--micro-batch", "1"]) == 130
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("plan: fits: FSDP2") for line in lines)
