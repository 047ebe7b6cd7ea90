"""The runs of a folder, one line each."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.executor.records.run import status_words
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.reports.clean import ascii_line, one_line
from gpu_plan.reports.plan import words
from gpu_plan.reports.run import words as run_words
from gpu_plan.reports.run.text import columns

HEADER = ("run", "status", "script", "strategy", "attempts", "steps", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run."""

    id: str
    status: str
    """As in run.json; `lost` where nobody looks after it any more, `unreadable` where run.json makes no sense."""
    script: str | None = None
    strategy: str | None = None
    attempts: int = 0
    steps: int | None = None
    """The last optimizer step that is known of any rank."""
    exit_code: int | None = None
    started: float | None = None
    """Seconds since the epoch."""
    folder: str | None = None
    engine: str | None = None
    """`slurm 4711`: where an engine placed it."""
    problem: str | None = None


def run_line(run: WholeRun) -> RunLine:
    """The line of a run."""
    record, latest = run.record, run.latest
    done = [attempt.last_step for attempt in record.attempts if attempt.last_step is not None]
    seen = [rank.steps[-1].step for rank in run.ranks if rank.steps]
    choice = None if run.plan is None else run.plan.plan.strategy.name
    return RunLine(
        id=record.run_id,
        status=run.status,
        script=record.script,
        strategy=choice or (None if latest is None else str(latest.strategy.get("name", "")) or None),
        attempts=len(record.attempts),
        steps=max([*done, *seen], default=None),
        exit_code=record.exit_code,
        started=record.started,
        folder=run.folder,
        engine=None if run.engine is None else run_words.engine_words(run.engine),
    )


def render_runs_text(lines: Sequence[RunLine], now: float, *, ascii_only: bool = False) -> str:
    """A table, oldest first; lines end with a newline."""
    clean = ascii_line if ascii_only else one_line
    placed = any(line.engine for line in lines)  # where there is none, there is no column for it
    header = (*HEADER, "engine") if placed else HEADER
    rows = [header, *((*_row(line, now), *((line.engine or run_words.UNKNOWN,) if placed else ())) for line in lines)]
    problems = [f"{clean(line.id)}: {clean(line.problem)}" for line in lines if line.problem]
    return "\n".join([*(line[2:] for line in columns(rows, clean)), *problems]) + "\n"


def _row(line: RunLine, now: float) -> tuple[str, ...]:
    name = line.script.rpartition("/")[2] if line.script else run_words.UNKNOWN
    return (
        line.id,
        status_words(line.status) + ("" if line.exit_code in (None, 0) else f" ({line.exit_code})"),
        name,
        words.strategy_title(line.strategy) if line.strategy else run_words.UNKNOWN,
        str(line.attempts),
        run_words.UNKNOWN if line.steps is None else str(line.steps),
        run_words.UNKNOWN if line.started is None else run_words.duration(now - line.started),
    )
