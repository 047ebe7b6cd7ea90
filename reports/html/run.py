"""A finished run as one HTML file: predicted against measured by rank and phase, steps, attempts."""

from typing import TYPE_CHECKING

from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.reports.html.page import bullets, cards, facts, page, plot, section
from gpu_plan.reports.html.plan import command_block
from gpu_plan.reports.markup import Child, Html, embedded_json, table, tag
from gpu_plan.reports.requires import need_matplotlib
from gpu_plan.reports.run import words as run_words
from gpu_plan.reports.run.as_json import render_run_json
from gpu_plan.reports.run.compare import RunComparison

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

JSON_ID = "run-document"
_GOOD, _BAD = ("succeeded",), ("failed", "launcher_failed", "lost")


def render_run_html(run: WholeRun, comparison: RunComparison) -> str:
    """The whole page, the run's records embedded as JSON in the element `run-document`. UsageError
    where matplotlib is not installed."""
    need_matplotlib("an HTML report")
    return page(
        f"Run {run.record.run_id}",
        run_head(run),
        cards(_cards(run, comparison)),
        facts(run_words.facts(run)),
        _memory(comparison),
        _speed(run, comparison),
        _ranks(comparison),
        _attempts(run),
        section("Deviations from the plan", bullets(run_words.deviations(run))),
        section("Notes", bullets([*run_words.rank_notes(run, comparison.ranks), *comparison.notes])),
        _command(run),
        embedded_json(render_run_json(run, comparison), JSON_ID),
        tag("footer", "GiB is 1024³ bytes. Measured figures are what the ranks themselves recorded."),
    )


def run_head(run: WholeRun) -> list[Child]:
    """How it ended, and what it was."""
    status = run.status
    colour = "fits" if status in _GOOD else "no" if status in _BAD else "tight"
    code = "" if run.record.exit_code is None else f" (exit code {run.record.exit_code})"
    model = None if run.plan is None else run.plan.model.id
    return [
        tag("div", f"{run_words.STATUS.get(status, status)}{code}", class_=f"verdict {colour}"),
        tag("h1", f"Run {run.record.run_id}" + (f": {model}" if model else "")),
    ]


def _cards(run: WholeRun, comparison: RunComparison) -> list[tuple[str, str]]:
    found = []
    for one in comparison.memory[:2]:
        if one.measured is not None:
            what = "" if one.ratio is None else f", {one.ratio:.3f} of the predicted"
            found.append((run_words.amount(one.measured, "bytes"), f"{one.name}{what}"))
    for heading, _, rows in run_words.tables(comparison):
        if heading == "Speed":
            found += [(row[2], f"{row[0]}, measured") for row in rows if row[2] != run_words.UNKNOWN][:3]
    losses = [line.last_loss for line in comparison.ranks if line.last_loss is not None]
    if losses:
        found.append((f"{losses[0]:.4f}", "last loss"))
    found.append((str(len(run.record.attempts)), "attempt" if len(run.record.attempts) == 1 else "attempts"))
    return found


def _memory(comparison: RunComparison) -> Html:
    from gpu_plan.reports.plots.run import memory_bars

    titles = [one for one in run_words.tables(comparison) if one[0] != "Speed"]
    parts: list[Child] = [
        _drawn("memory", lambda width: memory_bars(comparison, width), "Predicted and measured memory")
    ]
    for heading, header, rows in titles:
        parts += [tag("h3", heading), table(header, rows, label=heading)]
    return section("Memory, predicted against measured", *parts)


def _speed(run: WholeRun, comparison: RunComparison) -> Html:
    from gpu_plan.reports.plots.run import step_curves

    tables = [one for one in run_words.tables(comparison) if one[0] == "Speed"]
    drawn = _drawn("steps", lambda width: step_curves(run, width), "Seconds and loss of each step")
    return section("Throughput", drawn, [table(header, rows, label="speed") for _, header, rows in tables])


def _ranks(comparison: RunComparison) -> Html:
    from gpu_plan.reports.plots.run import rank_bars

    if not comparison.ranks:
        return Html("")
    header, *rows = run_words.rank_table(comparison)
    drawn = _drawn("ranks", lambda width: rank_bars(comparison, width), "Peak memory of every rank")
    return section("Ranks of the latest attempt", drawn, table(header, rows, text_columns=3, label="ranks"))


def _attempts(run: WholeRun) -> Html:
    attempts = run.record.attempts
    if not attempts:
        return Html("")
    rows = [run_words.attempt_row(attempt, run.last_sign) for attempt in attempts]
    notes = [f"{one.number}: {text}" for one in attempts for text in run_words.attempt_notes(one)]
    return section("Attempts", table(run_words.ATTEMPT_HEADER, rows, text_columns=5, label="attempts"), bullets(notes))


def _command(run: WholeRun) -> Html:
    import shlex

    latest = run.latest
    return Html("") if latest is None else section("Launch command", command_block(shlex.join(latest.command)))


def _drawn(name: str, draw: "Callable[[float], Figure | None]", title: str) -> Html:
    """A plot, or nothing where there is nothing to draw."""
    if draw(9.6) is None:
        return Html("")
    return plot(name, draw, title)  # type: ignore[arg-type]
