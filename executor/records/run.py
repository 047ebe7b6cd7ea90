"""What the supervisor writes of a whole run: `run.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.notebook import shown

SCHEMA_VERSION = 1
FIRST_STEP = "first step"
"""The phase with which the waiting ends."""

RunStatus = Literal[
    "preparing",
    "queued",
    "running",
    "succeeded",
    "succeeded_not_as_planned",
    "failed",
    "interrupted",
    "launcher_failed",
    "lost",
]
"""`queued`: an engine has the job, for the first time or again. `succeeded_not_as_planned`: the job ended well, and its
ranks saw another job than the planned one: the attempts' `deviations` say which. `lost`: the supervisor was killed; its
keeper ended the processes and wrote so."""
Cause = Literal[
    "success",
    "oom",
    "host_oom",
    "signal",
    "exception",
    "exit",
    "hang",
    "interrupted",
    "launcher",
    "torn",
    "deviation",
    "nan",
    "disk_full",
    "requeued",
    "node_lost",
]
"""Why an attempt ended. `oom`: a failed allocation that a rank could report (CUDA's, or the CPU allocator's);
`host_oom`: the kernel killed a process for memory; `signal`: killed otherwise; `nan`: --stop-on-nan ended it;
`disk_full`: a rank could not write, mostly a checkpoint, for want of room; `requeued`: the engine took the nodes back
(time limit, preemption), and the job waits or has begun again; `node_lost`: a node went without a word."""
GOES_ON: tuple[RunStatus, ...] = ("preparing", "queued", "running")
"""Statuses of a run that is not over."""


def status_words(status: str) -> str:
    """`succeeded, not as planned`, `launcher failed`: a status as people read it."""
    return status.replace("succeeded_", "succeeded, ").replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the time before or in an attempt."""

    name: str
    """Before the first attempt `planning`, `checking`; in each attempt `launcher`, `importing torch`, `preparing`,
    `first step`, `steps`, `ending`, as far as it came."""
    seconds: float


def to_first_step(before: Sequence[Phase], attempt: Sequence[Phase]) -> tuple[Phase, ...]:
    """What passed before the first step was done, of an attempt and what was before it; empty where none was."""
    names = [phase.name for phase in attempt]
    return (*before, *attempt[: names.index(FIRST_STEP) + 1]) if FIRST_STEP in names else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of the job."""

    number: int
    """From 1."""
    command: tuple[str, ...]
    """The launch command's words."""
    started: float
    ended: float | None = None
    exit_code: int | None = None
    """The launcher's."""
    cause: Cause | None = None
    """None while it runs."""
    culprit: int | None = None
    """The rank that failed first, where known."""
    explanation: str = ""
    """One line: what happened, to whom, and what the evidence is."""
    resumed_from: str | None = None
    first_step: int = 1
    last_step: int | None = None
    """The last optimizer step that every rank finished."""
    strategy: Mapping[str, object] = field(default_factory=dict)
    """The strategy section of the plan that this attempt ran."""
    changes: tuple[str, ...] = ()
    """What was changed against the attempt before, and why."""
    shots: tuple[str, ...] = ()
    """What the supervisor itself ended by SIGKILL, and why, one line each."""
    phases: tuple[Phase, ...] = ()
    """Where its time went; of several ranks the slowest counts."""
    deviations: tuple[str, ...] = ()
    """Where what ran differs from what was planned, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The whole of `run.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    status: RunStatus
    script: str
    script_arguments: tuple[str, ...]
    working_directory: str
    world_size: int
    started: float
    updated: float
    ended: float | None = None
    supervisor_pid: int
    exit_code: int | None = None
    """What `plan --execute` ended with: the job's own code, 125 where the launcher itself failed."""
    phases: tuple[Phase, ...] = ()
    """Before the first attempt."""
    attempts: tuple[Attempt, ...] = ()
    message: str = ""
    """One line for people."""

    @property
    def succeeded(self) -> bool:
        """Whether the job ended well, as planned or not."""
        return self.status in ("succeeded", "succeeded_not_as_planned")

    def _repr_html_(self) -> str | None:
        return shown("run_record_fragment", self)
