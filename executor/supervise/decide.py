"""What follows an ended attempt: pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_plan.executor.records.run import Attempt

Action = Literal["stop", "retry", "replan"]
_CRASHES = ("signal", "exception", "exit", "hang", "launcher", "torn", "disk_full", "node_lost")
_OUT_OF_MEMORY = ("oom", "host_oom")
_SEVERAL_HOSTS = (
    "a job on several hosts is not restarted or replanned by itself, whatever --max-restarts says: each host would"
    " choose its checkpoint alone; run the command again on every host"
)
_RANK = re.compile(r"\branks? \d+(, \d+)*( and \d+)?\b")
_USAGE_ERROR = 2
"""What argparse and click exit with."""
_IN_THE_CODE = frozenset(
    {
        "SyntaxError",
        "IndentationError",
        "ImportError",
        "ModuleNotFoundError",
        "NameError",
        "AttributeError",
        "TypeError",
        "ValueError",
        "KeyError",
        "IndexError",
        "AssertionError",
        "NotImplementedError",
    }
)
"""Exceptions that circumstances do not cause: before the first step, the same code meets the same arguments again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next action and, for people, why."""

    action: Action
    reason: str = ""


def decide(
    attempts: Sequence[Attempt],
    exit_code: int,
    max_restarts: int,
    *,
    ranks_ran: bool,
    error_type: str | None = None,
    hosts: int = 1,
    no_room: str = "",
) -> Decision:
    """What to do after the last of `attempts`, which has ended with `exit_code`.

    `ranks_ran`: whether any rank of it got as far as its own record. `error_type`: of the culprit's exception.
    `no_room`: where the last one ended on a full disk that still is, and what to do.
    Of several `hosts` each has its own supervisor: they would choose checkpoints, and plans, apart from each other.
    """
    last = attempts[-1]
    if hosts > 1 and last.cause in (*_OUT_OF_MEMORY, *_CRASHES):
        return Decision(action="stop", reason=_SEVERAL_HOSTS)
    if last.cause == "node_lost":
        return Decision(action="stop", reason="what is left of its nodes is not enough")
    if last.cause in _OUT_OF_MEMORY:
        return Decision(action="replan")
    if last.cause not in _CRASHES:
        return Decision(action="stop")
    if last.cause == "launcher" and not ranks_ran:
        return Decision(action="stop", reason="a launcher that starts no rank will not do so the next time")
    if last.cause == "exit" and exit_code == _USAGE_ERROR and last.last_step is None:
        return Decision(action="stop", reason="the script refused its arguments: another attempt would end the same")
    if last.cause == "exception" and last.last_step is None and error_type in _IN_THE_CODE:
        return Decision(
            action="stop",
            reason=f"{error_type} before the first step lies in the code or its arguments: no restart helps",
        )
    if last.cause == "disk_full" and no_room:
        return Decision(action="stop", reason=no_room)
    if _same_again(attempts):
        where = f"after step {last.last_step}" if last.last_step else "before its first step"
        return Decision(
            action="stop",
            reason=f"attempts {last.number - 1} and {last.number} ended alike {where}: it is not an accident",
        )
    restarts = sum(1 for attempt in attempts[:-1] if attempt.cause in _CRASHES)
    if restarts >= max_restarts:
        why = "none was allowed" if max_restarts == 0 else f"all {max_restarts} were used"
        return Decision(action="stop", reason=f"no restart is left: {why} (--max-restarts)")
    return Decision(action="retry", reason=f"restart {restarts + 1} of {max_restarts}")


def _same_again(attempts: Sequence[Attempt]) -> bool:
    """Whether the last two attempts failed by the same exception or exit at the same step.

    Which of the ranks told it first is chance, where all of them meet it.
    """
    if len(attempts) < 2:
        return False
    before, last = attempts[-2], attempts[-1]
    return (
        last.cause in ("exception", "exit")
        and before.cause == last.cause
        and before.last_step == last.last_step
        and _RANK.sub("", before.explanation) == _RANK.sub("", last.explanation)
    )
