"""A run's figures in words, the same in every report of it. Nothing here knows a format."""

import time
from collections.abc import Sequence

from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import Attempt, to_first_step
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.units import format_bytes, format_short
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.plan import words
from gpu_plan.reports.run import inference as run_inference
from gpu_plan.reports.run.compare import RunComparison
from gpu_plan.reports.run.figures import Compared, RankLine

STATUS = {
    "preparing": "PREPARING",
    "queued": "QUEUED",
    "running": "RUNNING",
    "succeeded": "SUCCEEDED",
    "succeeded_not_as_planned": "SUCCEEDED, NOT AS PLANNED",
    "failed": "FAILED",
    "interrupted": "INTERRUPTED",
    "launcher_failed": "LAUNCHER FAILED",
    "lost": "LOST",
}
UNKNOWN = "-"
HEADER = ("", "predicted", "measured", "measured/predicted")
PROMPT_HEADER = ("rank", "device", "status", "batches", "peak", *run_inference.PHASES, "batch", "tokens/s")
RANK_HEADER = ("rank", "device", "status", "steps", "peak", "forward", "backward", "optimizer", "step", "loss")
ATTEMPT_HEADER = ("attempt", "strategy", "steps", "time", "ended by", "exit")


def title(run: WholeRun) -> str:
    """`20261120-201500-a1b2c3  SUCCEEDED (exit code 0)`."""
    code = "" if run.record.exit_code is None else f" (exit code {run.record.exit_code})"
    return f"{run.record.run_id}  {STATUS[run.status]}{code}"


def facts(run: WholeRun) -> list[tuple[str, str]]:
    """What was run, where, and how long."""
    record = run.record
    found = [("script", " ".join([record.script, *record.script_arguments]))]
    if run.plan is not None:
        choice = run.plan.plan.strategy
        batch = [words.batch_words(choice), choice.precision, words.checkpointing_words(choice)]
        if run_inference.is_inference(run):
            batch = [run_inference.batch_words(run), choice.precision]
        found.append(("plan", " · ".join([run.plan.model.id, words.strategy_words(choice), *batch])))
        found.append(("cluster", str(run.plan.cluster["spec"])))
    found.append(("started", stamp(record.started)))
    found.append(("took", duration((record.ended or run.last_sign) - record.started)))
    if record.attempts and (waited := to_first_step(record.phases, record.attempts[0].phases)):
        parts = ", ".join(f"{phase.name} {duration(phase.seconds)}" for phase in waited)
        found.append(("first step", f"after {duration(sum(phase.seconds for phase in waited))}: {parts}"))
    if run.engine is not None:
        found.append(("engine", engine_words(run.engine)))
    if run.status == "lost" and run.engine is not None:
        found.append(("lost", f"{engine_words(run.engine)} is there no more, and nobody wrote how it ended"))
    elif run.status == "lost":
        found.append(("lost", f"process {record.supervisor_pid}, which looked after it, is gone"))
    if record.message:
        found.append(("message", record.message))
    return [*found, ("folder", run.folder)]


def engine_words(engine: EngineJob) -> str:
    """`slurm 4711`."""
    return " ".join(filter(None, (engine.engine, engine.job, engine.where)))


def compared_row(figure: Compared, unit: str) -> tuple[str, ...]:
    """One figure's line under `HEADER`."""
    predicted = amount(figure.predicted, unit)
    if figure.low is not None and figure.high is not None and figure.low != figure.high:
        predicted += f" ({amount(figure.low, unit)} to {amount(figure.high, unit)})"
    verdict = UNKNOWN
    if figure.ratio is not None:
        inside = {True: ", inside", False: ", OUTSIDE", None: ""}[figure.inside]
        verdict = f"{figure.ratio:.3f}{inside}"
    elif not figure.comparable and figure.measured is not None:
        verdict = "not comparable"
    elif not figure.comparable:
        verdict = "not known"
    return figure.name.replace("_", " "), predicted, amount(figure.measured, unit), verdict


def tables(comparison: RunComparison) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Heading, column heads and rows of every comparison that has something to say."""
    sections = (
        ("Memory of the worst rank", comparison.memory, "bytes"),
        ("Peak by phase", comparison.phases, "bytes"),
        ("At the predicted peak, by category", comparison.categories, "bytes"),
        ("Speed", comparison.speed, ""),
    )
    return [
        (heading, HEADER, [compared_row(figure, unit or _unit(figure)) for figure in figures])
        for heading, figures, unit in sections
        if figures
    ]


def _unit(figure: Compared) -> str:
    return "seconds" if figure.name == "step" or figure.name in run_inference.SECONDS else "rate"


def amount(value: float | None, unit: str) -> str:
    """`1.2 GiB`, `412 ms`, `1,234`; `-` for nothing."""
    if value is None:
        return UNKNOWN
    if unit == "bytes":
        return format_bytes(int(value))
    return seconds(value) if unit == "seconds" else format_short(value)


def rank_table(comparison: RunComparison) -> list[tuple[str, ...]]:
    """The ranks, under their header."""
    if comparison.inference:
        return [PROMPT_HEADER, *(prompt_row(line) for line in comparison.ranks)]
    return [RANK_HEADER, *(rank_row(line) for line in comparison.ranks)]


def prompt_row(line: RankLine) -> tuple[str, ...]:
    """One rank under `PROMPT_HEADER`."""
    phases = [amount(line.phases.get(name), "bytes") for name in run_inference.PHASES]
    peak, batch = amount(line.peak_bytes, "bytes"), amount(line.step_seconds, "seconds")
    rate = amount(line.tokens_per_second, "rate")
    return (str(line.rank), line.device, line.status, str(line.steps), peak, *phases, batch, rate)


def rank_row(line: RankLine) -> tuple[str, ...]:
    """One rank under `RANK_HEADER`."""
    phases = [amount(line.phases.get(name), "bytes") for name in ("forward", "backward", "optimizer")]
    loss = UNKNOWN if line.last_loss is None else f"{line.last_loss:.4f}"
    peak, step = amount(line.peak_bytes, "bytes"), amount(line.step_seconds, "seconds")
    return (str(line.rank), line.device, line.status, str(line.steps), peak, *phases, step, loss)


def attempt_row(attempt: Attempt, updated: float) -> tuple[str, ...]:
    """One attempt under `ATTEMPT_HEADER`."""
    last = UNKNOWN if attempt.last_step is None else str(attempt.last_step)
    steps = f"{attempt.first_step} to {last}"
    ended = attempt.cause or "still on"
    culprit = "" if attempt.culprit is None else f", rank {attempt.culprit}"
    code = UNKNOWN if attempt.exit_code is None else str(attempt.exit_code)
    time_taken = duration((attempt.ended or updated) - attempt.started)
    return str(attempt.number), strategy(attempt), steps, time_taken, ended + culprit, code


def strategy(attempt: Attempt) -> str:
    """`ZeRO-2 2×1`: the strategy, its micro batch and its accumulation steps."""
    values = attempt.strategy
    name = words.strategy_title(str(values.get("name", "?")))
    batch, steps = values.get("micro_batch_size"), values.get("gradient_accumulation_steps")
    return name if batch is None else f"{name} {batch}×{steps}"


def attempt_notes(attempt: Attempt) -> list[str]:
    """What is to be said of an attempt beside its row."""
    found = [attempt.explanation] if attempt.explanation else []
    if attempt.resumed_from:
        found.append(f"resumed from {attempt.resumed_from}")
    found += [f"killed by plan: {shot}" for shot in attempt.shots]
    return [*found, *(f"changed: {change}" for change in attempt.changes)]


def deviations(run: WholeRun) -> list[str]:
    """Where what ran differs from what was planned."""
    return [f"attempt {a.number}: {text}" for a in run.record.attempts for text in a.deviations]


def rank_notes(run: WholeRun, lines: Sequence[RankLine]) -> list[str]:
    """Errors of ranks, and what they could not observe; the same words once."""
    errors = [f"rank {line.rank}: {line.error}" for line in lines if line.error]
    notes: dict[str, list[int]] = {}
    for rank in run.ranks:
        for note in rank.notes:
            notes.setdefault(note, []).append(rank.rank)
    return errors + [f"rank {', '.join(map(str, ranks))}: {note}" for note, ranks in notes.items()]


def stamp(seconds: float) -> str:
    """Local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.4 h`, `2.1 d`."""
    seconds = max(0.0, seconds)
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            value = seconds / divisor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
