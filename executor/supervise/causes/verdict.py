"""How one attempt ended, and the words that every judge of it uses. Pure."""

import signal
from dataclasses import dataclass

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import Cause

_WRAPPED = "Original Traceback (most recent call last):"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one attempt ended."""

    cause: Cause
    exit_code: int
    """What `plan --execute` ends with if this was the last attempt."""
    explanation: str
    culprit: int | None = None


def code_of(rank: RankRecord) -> int:
    """What its process ended with; 1 where it did not come to say so."""
    return rank.exit_code if rank.exit_code else 1


def step_of(rank: RankRecord) -> str:
    """`after step 4`, `before its first step`, as exact as the record is."""
    last = rank.steps[-1].step if rank.steps else None
    if rank.status in ("starting", "running"):  # it had no time to write: its record is a moment old
        return "before its first recorded step" if last is None else f"soon after step {last}"
    return "before its first step" if last is None else f"after step {last}"


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 34` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def one_line(text: str, limit: int = 300) -> str:
    """Without line breaks, cut at `limit` characters."""
    first, wrapped, rest = text.partition(_WRAPPED)
    if wrapped:
        # A DataLoader's worker, or a replica: torch/_utils.py, ExceptionWrapper. What was raised there comes last.
        text = f"{first.strip()} {(rest.strip().splitlines() or [''])[-1]}"
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
