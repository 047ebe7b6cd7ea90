"""What `plan check` found: plain values that every report renders. Versioned; no file and no format is known here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.plan.codec import decode, dump, load_object

SCHEMA_VERSION = 1

Level = Literal["error", "warning", "notice"]
"""`error` fails the check, `warning` does not, `notice` explains or informs."""
Status = Literal["ok", "warn", "fail", "new", "error"]
"""`new`: there is no baseline yet and no budget is broken; `error`: the job could not be computed."""
Kind = Literal["budget", "growth", "culprit", "input", "measured", "information", "problem"]
"""`budget`: an absolute limit; `growth`: against the baseline; `culprit`: a tensor's origin behind a growth; `input`: a
configuration, model or version that changed; `measured`: a recorded run; `problem`: why a job has no figures."""

_ORDER: tuple[Status, ...] = ("ok", "new", "warn", "fail", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFigure:
    """One figure of a job now and in its baseline."""

    name: str
    """Name in the baseline file, such as `peak_reserved_bytes`, `at_peak.activations`, `step_microseconds`."""
    label: str
    """In words, such as `peak reserved`."""
    unit: Literal["bytes", "microseconds", "count"]
    baseline: int | None
    """None where there is no baseline, or it does not have the figure."""
    current: int | None
    """None where it is not known now."""
    change: int | None = field(init=False)
    """`current - baseline`; None where one is missing."""
    judged: bool = False
    """Whether `warn` and `fail` apply to it; the others inform."""

    def __post_init__(self) -> None:
        change = None if self.baseline is None or self.current is None else self.current - self.baseline
        object.__setattr__(self, "change", change)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to say about a job; `file` and `line` are where a reader can act on it."""

    level: Level
    kind: Kind
    message: str
    """One line, such as `+4.0 GiB activations: aten._to_copy in train.py:88`."""
    file: str | None = None
    """Relative to the folder of the configuration file, with `/`; None where no file of the project is behind it."""
    line: int | None = None
    """From 1; None where only the file is known."""
    delta_bytes: int | None = None
    """Bytes at the peak that it accounts for; negative where memory was saved."""
    category: str | None = None
    """Of memory, as in a plan's `at_peak`."""
    module: str | None = None
    """Qualified name of the module; `*` stands for the index of repeated blocks."""
    operator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job of the configuration, checked."""

    name: str
    file: str
    """The configuration file that names the job, relative to its own folder."""
    line: int | None
    """Of the job's table."""
    baseline_file: str | None = None
    """Relative likewise; None where there is none yet."""
    status: Status
    job: str = ""
    """The job in words: model, devices, strategy, batch."""
    figures: tuple[CheckFigure, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Worst first: errors, warnings, notices; the larger change first."""
    cached: bool = False
    """Whether nothing that the job rests on changed, so that its figures were kept from before."""
    updated: bool = False
    """Whether `--update` wrote its baseline."""

    @property
    def worst(self) -> Finding | None:
        """What a one-line summary quotes; None where there is nothing to say."""
        return self.findings[0] if self.findings else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All jobs that were checked, in the order of the configuration."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["check-report"] = "check-report"
    command: str
    root: str
    """Folder of the configuration file, absolute: what the findings' files are relative to."""
    versions: Mapping[str, str]
    jobs: tuple[JobResult, ...]
    status: Status = field(init=False)
    """Of the worst job; `ok` where there are none."""
    exit_code: int = field(init=False)
    """0: no job fails; 1: a regression or a broken budget; 2: a job could not be computed."""

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {self.schema_version}, not {SCHEMA_VERSION}")
        status = max((job.status for job in self.jobs), key=_ORDER.index, default="ok")
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "exit_code", {"fail": 1, "error": 2}.get(status, 0))


def report_to_json(report: CheckReport) -> str:
    """The same bytes for the same report, ASCII only, without a final newline."""
    return dump(report)


def report_from_json(text: str | bytes, where: str) -> CheckReport:
    """What `report_to_json` wrote; `where` names it in messages. InputError in one line for anything else."""
    return decode(CheckReport, load_object(text, where), where)
