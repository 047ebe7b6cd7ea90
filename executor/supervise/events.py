"""What the supervisor tells while it works: one kind of value, for whoever shows it."""

from dataclasses import dataclass
from typing import Literal

from gpu_plan.executor.records.run import Attempt, Phase, RunRecord
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.planner.plan.saved import SavedPlan

EventKind = Literal["run", "launch", "pulse", "output", "note", "phase", "attempt", "end"]
"""`run`: the run folder exists; `launch`: a command is about to be started; `pulse`: ranks moved on; `output`: rank 0
or the launcher wrote; `note`: a line for people; `phase`: an attempt without a step came further, or did its first;
`attempt`: one ended; `end`: all is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. Only what belongs to its kind is set."""

    kind: EventKind
    record: RunRecord
    """The run as run.json holds it at that moment."""
    command: tuple[str, ...] = ()
    text: str = ""
    error_stream: bool = False
    """`output`: whether it was written to stderr."""
    pulses: tuple[Pulse, ...] = ()
    """`pulse`: the latest of every rank, in rank order."""
    phase: str = ""
    """`phase`: where the attempt is, as in `follow.phases`."""
    phases: tuple[Phase, ...] = ()
    """`phase`: what lies behind it in this attempt."""
    attempt: Attempt | None = None
    """`attempt`: the one that ended."""
    plan: SavedPlan | None = None
    """`launch`: what is about to run."""
