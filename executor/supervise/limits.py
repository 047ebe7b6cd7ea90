"""How long the supervisor waits, for what."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.executor.names import HANG_SECONDS
from gpu_plan.planner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, unless said otherwise."""

    poll: float = 0.1
    """Between two looks at the launcher."""
    pulse: float = 0.5
    """Between two looks at the ranks' records."""
    end: float = 5.0
    """From the polite signal to the one that cannot be refused: everything has ended within 15 s of the first."""
    peers: float = 5.0
    """From a rank's failure until its peers, who may wait in a collective or ignore signals, are killed; twice as long
    while the failed rank itself is still there."""
    launcher: float = 20.0
    """From then until the launcher itself is killed: its report says how each rank ended."""
    hang: float = 60.0
    """No step for this long, with all ranks idle, is a hang; 0 turns the watch off."""
    hang_steps: float = 20.0
    """... or for this many median steps, if that is longer."""
    hang_gaps: float = 3.0
    """... or for this many times the longest pause between steps so far (evaluation, checkpoints)."""
    hang_busy: float = 10.0
    """The bound is this many times longer while a rank still computes, reads or writes."""
    hang_first: float = 900.0
    """Before the first step: loading, compiling, preparing data."""
    hang_hosts: float = 900.0
    """... and while other hosts have not come, if that is longer."""
    stacks: float = 2.0
    """For hung ranks to write their stacks."""
    log_bytes: int = 16 * 1024 * 1024
    """Each log file keeps no more than its last so many bytes (and as many again for a while)."""


def read_limits(environment: Mapping[str, str], option: str | None = None) -> Limits:
    """The limits that the user asks for: by `--hang-seconds` (`option`), else by the environment.

    A figure that is asked for holds before the first step too, and while nothing else is known. UsageError for one that
    makes no sense.
    """
    name = HANG_SECONDS if option is None else "--hang-seconds"
    text = (environment.get(HANG_SECONDS, "") if option is None else option).strip()
    if not text and option is None:
        return Limits()
    try:
        seconds = float(text)
        if not 0 <= seconds < float("inf"):
            raise ValueError
    except ValueError:
        raise UsageError(f"{name}={text!r} is not a number of seconds: 0 turns the watch for hangs off") from None
    return Limits(hang=seconds, hang_first=seconds)
