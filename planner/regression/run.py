"""Checks the jobs of a project: computes each, compares it, and rewrites baselines where that is asked for (I/O)."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.config_reader import MAX_BYTES as MAX_CONFIG
from gpu_plan.planner.options.config import CheckTables
from gpu_plan.planner.options.request import Answer
from gpu_plan.planner.plan.files import write_text
from gpu_plan.planner.regression.baseline import Baseline, baseline_from_json, baseline_to_json
from gpu_plan.planner.regression.compare import judge
from gpu_plan.planner.regression.computed import Computed, OwnConfig, computed, fit_of
from gpu_plan.planner.regression.jobs import CheckJob, read_jobs
from gpu_plan.planner.regression.places import Place, Sources, json_line
from gpu_plan.planner.regression.result import Finding, JobResult
from gpu_plan.planner.regression.state import keep, kept, state_key

Plan = Callable[[CheckJob, str], Answer]
"""(job, GPUs) -> the pinned plan with its tensors explained; the project's root is the working directory."""
FOLDER = ".plan"
_MAX_BYTES = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One job and what it came to; `now` is None where it could not be computed."""

    job: CheckJob
    result: JobResult
    now: Computed | None = None
    baseline: Baseline | None = None


def check_jobs(
    tables: CheckTables, names: Sequence[str], plan: Plan, *, update: bool = False, use_cache: bool = True
) -> tuple[Checked, ...]:
    """The jobs of these names, of all where none is named; with `update` their baselines are written.

    Nothing is written unless every job could be computed. InputError for a configuration that makes no sense; what is
    wrong with one job is a finding of its own.
    """
    jobs = read_jobs(tables, names)
    found = [_checked(job, plan, update=update, use_cache=use_cache) for job in jobs]
    if not update or any(checked.result.status == "error" for checked in found):
        return tuple(found)
    return tuple(_updated(checked) for checked in found)


def baseline_path(job: CheckJob) -> Path:
    """Where a job's baseline stands."""
    return job.path.parent / FOLDER / f"{job.name}.json"


def _checked(job: CheckJob, plan: Plan, *, update: bool, use_cache: bool) -> Checked:
    relative = f"{FOLDER}/{job.name}.json"
    try:
        baseline = _read_baseline(job, relative, lenient=update)
        now, cached = _now(job, plan, use_cache=use_cache)
        judged = judge(job, now, baseline)
    except PlanError as problem:
        return Checked(job=job, result=_problem(job, str(problem), relative))
    return Checked(
        job=job,
        now=now,
        baseline=baseline,
        result=JobResult(
            name=job.name,
            file=job.path.name,
            line=job.line,
            baseline_file=None if baseline is None else relative,
            status=judged.status,
            job=now.words,
            figures=judged.figures,
            findings=judged.findings,
            cached=cached,
        ),
    )


def _problem(job: CheckJob, said: str, relative: str) -> JobResult:
    """A job without figures; the line of a baseline is in its own message."""
    file, line = job.path.name, job.line
    if said.startswith(f"{relative}:"):
        number, _, rest = said.removeprefix(f"{relative}:").partition(": ")
        if number.isdigit():
            file, line, said = relative, int(number), rest
    finding = Finding(level="error", kind="problem", message=said, file=file, line=line)
    return JobResult(name=job.name, file=job.path.name, line=job.line, status="error", findings=(finding,))


def _read_baseline(job: CheckJob, relative: str, *, lenient: bool) -> Baseline | None:
    """None where there is none; with `lenient`, also where it makes no sense, for it is about to be replaced."""
    try:
        text = read_bytes(baseline_path(job), _MAX_BYTES).decode("utf-8")
        return baseline_from_json(text, relative, job.name)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"{relative} cannot be read: {problem.strerror}") from None
    except (UnicodeDecodeError, InputError) as problem:
        if lenient:
            return None
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{relative}:1: not UTF-8 text: make it again with `plan check --update {job.name}`") from None


def _now(job: CheckJob, plan: Plan, *, use_cache: bool) -> tuple[Computed, bool]:
    """What the job takes now, and whether that was known from before.

    A model by name is known from before through its plan's own cache entry.
    """
    with contextlib.chdir(job.path.parent):
        if not (use_cache and job.runs_code):
            return _compute(job, plan), False
        key = state_key(job)
        before = kept(key)
        if before is not None:
            return before, True
        found = _compute(job, plan)
        keep(key, found)
        return found, False


def _compute(job: CheckJob, plan: Plan) -> Computed:
    root = job.path.parent.resolve()
    home = (root / job.model).resolve().parent if job.model.endswith(".py") else root
    answer = plan(job, job.gpus)
    config = OwnConfig() if job.runs_code else _own_config(root / job.model, root)
    found = computed(job.name, answer, Sources(root=root, home=home), config, code=job.runs_code)
    others = {gpus: plan(job, gpus) if gpus != job.gpus else answer for gpus in _clusters(job)}
    return replace(found, fits={gpus: fit_of(other.document) for gpus, other in others.items()})


def _clusters(job: CheckJob) -> Iterator[str]:
    yield from dict.fromkeys(budget.gpus or job.gpus for budget in job.budgets if budget.fits)


def _own_config(path: Path, root: Path) -> OwnConfig:
    """The config.json of a model that the project holds; nothing for one by its hub id."""
    file = (path / "config.json" if path.is_dir() else path).resolve()
    if file.suffix != ".json" or not file.is_file() or not file.is_relative_to(root):
        return OwnConfig()
    try:
        text = read_bytes(file, MAX_CONFIG).decode("utf-8-sig")
        value = json_value(text, infinity=True)
    except (OSError, ValueError):
        return OwnConfig()  # its plan has refused it already
    if not isinstance(value, dict):
        return OwnConfig()
    where = file.relative_to(root).as_posix()
    return OwnConfig(values=value, places={key: str(Place(file=where, line=json_line(text, key))) for key in value})


def _updated(checked: Checked) -> Checked:
    """Writes the job's baseline; what grew is accepted by that, a broken budget is not."""
    assert checked.now is not None
    path = baseline_path(checked.job)
    text = baseline_to_json(checked.now.state)
    written = not path.is_file() or path.read_bytes() != text.encode()
    if written:
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as problem:
            raise InputError(f"{path.parent} cannot be made: {problem.strerror}") from None
        write_text(path, text, force=True)
    missing = checked.baseline is None  # which the notice of a new job says, and is true no more
    findings = tuple(
        _accepted(finding) for finding in checked.result.findings if not (missing and finding.kind == "information")
    )
    failed = any(finding.level == "error" for finding in findings)
    result = replace(
        checked.result,
        status="fail" if failed else "ok",
        findings=findings,
        updated=written,
        baseline_file=f"{FOLDER}/{path.name}",
    )
    return replace(checked, baseline=checked.now.state, result=result)


def _accepted(finding: Finding) -> Finding:
    return replace(finding, level="notice") if finding.kind == "growth" else finding
