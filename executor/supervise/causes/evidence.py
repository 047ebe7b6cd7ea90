"""What is known of an attempt when it has ended: plain values for the classification."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.supervise.causes.stacks import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How torch's elastic agent says that a rank's process ended."""

    rank: int
    exit_code: int
    """Negative: the signal that killed it."""
    pid: int
    first: bool = False
    """Whether the agent saw it before the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Of one attempt."""

    launcher_code: int | None
    """The launcher's return code, negative for a signal; None where it never started."""
    ranks: Sequence[RankRecord] = ()
    exits: Sequence[RankExit] = ()
    world_size: int = 1
    hosts: int = 1
    """Ranks, exits and world size are this one's only."""
    interrupted: str | None = None
    """Name of the signal that ended the supervisor's wait, such as `SIGINT`."""
    launcher_signal: str | None = None
    """Name of the signal that the launcher reported to have got."""
    hung_seconds: float | None = None
    """How long no step had ended when the watch gave up; None where it did not."""
    stacks: str | None = None
    """Where the hung ranks' stacks are."""
    places: Sequence[Place] = ()
    """Where those ranks stood."""
    killed: frozenset[int] = field(default_factory=frozenset)
    """Pids that the supervisor itself killed: their signals say nothing."""
    launcher_shot: bool = False
    """Whether the supervisor itself killed the launcher."""
    gone: frozenset[int] = field(default_factory=frozenset)
    """Ranks whose process had left by itself while their record said that they ran."""
    stopped: Mapping[int, str] = field(default_factory=dict)
    """By rank, who of it stood stopped by a signal when the watch gave up."""
    silent: Mapping[int, int] = field(default_factory=dict)
    """By rank, the number of its node, where an engine placed several and that node's launcher left no word."""
    oom_kills: int = 0
    """How many processes the kernel killed for memory meanwhile."""
    full_disks: Sequence[str] = ()
    """One phrase for each disk of the run that has next to nothing free at the end."""
    launcher_error: str = ""
    """What was said last, by a rank before its record or by the launcher, on stderr."""


_BLOCK = re.compile(
    r"rank\s*: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)", re.MULTILINE
)
_ROOT = "Root Cause (first observed failure):"


_SIMPLE = re.compile(
    r"CalledProcessError: Command .* (?:died with <Signals\.\w+: (?P<signal>\d+)>|"
    r"returned non-zero exit status (?P<status>\d+))"
)


def parse_exits(text: str) -> tuple[RankExit, ...]:
    """Ranks' ends in the report that torch's ChildFailedError prints (torch.distributed.elastic, errors/__init__.py).

    Of several reports the last counts. The root cause comes last in it, and first in the answer. A launch of one
    process has no agent: there accelerate's `simple_launcher` raises CalledProcessError, whose pid is not told (0).
    """
    start = max((match.start() for match in re.finditer(r"^Failures:$", text, re.MULTILINE)), default=-1)
    if start < 0:
        simple = _SIMPLE.findall(text)
        code = -int(simple[-1][0]) if simple and simple[-1][0] else int(simple[-1][1]) if simple else 0
        return (RankExit(rank=0, exit_code=code, pid=0, first=True),) if simple else ()
    report = text[start:]
    root = report.find(_ROOT)
    found = []
    for match in _BLOCK.finditer(report):
        first = root >= 0 and match.start() > root
        values = {name: int(match[name]) for name in ("rank", "pid")}
        found.append(RankExit(rank=values["rank"], exit_code=int(match["code"]), pid=values["pid"], first=first))
    return tuple(sorted(found, key=lambda end: (not end.first, end.rank)))


_GOT_SIGNAL = re.compile(r"SignalException: Process \d+ got signal: (\d+)")


def parse_launcher_signal(text: str) -> int | None:
    """Number of the signal that made the elastic agent give up, from its traceback; None where there is none."""
    found = _GOT_SIGNAL.findall(text)
    return int(found[-1]) if found else None


_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|.*\berror: .*)$")


def error_line(text: str) -> str:
    """The last line that names an error, else the last that says anything; empty where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" =-\t")]
    named = [line for line in lines if _ERROR.match(line) and "ChildFailedError" not in line]
    return (named or lines or [""])[-1]
