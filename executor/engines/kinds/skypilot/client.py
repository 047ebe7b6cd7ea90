"""SkyPilot's own client, the `sky` command (0.14), its words in one line each (I/O).

It may stand in an environment of its own: nothing of SkyPilot is imported here. A managed job is called by its name,
which is the run's own; a job of a cluster by that and the cluster's.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_plan.executor.engines.engine import JobState, Where
from gpu_plan.planner.errors import UnreachableError, UsageError

NEEDS = "pip install skypilot, into an environment of its own, and put its `sky` on PATH"
_SUBMIT, _ASK = 3600.0, 180.0
"""Seconds: the first managed job also makes SkyPilot's controller."""
_WHERE: Mapping[str, Where] = {
    "INIT": "queued", "PENDING": "queued", "SUBMITTED": "queued", "STARTING": "queued", "SETTING_UP": "queued",
    "RECOVERING": "queued", "RUNNING": "running", "WINDING_DOWN": "running", "CANCELLING": "running",
}  # fmt: skip
"""sky/jobs/state.py: ManagedJobStatus; sky/skylet/job_lib.py: JobStatus. All others are ends."""
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")
_NOT_THERE = ("no enabled", "no cloud", "could not connect", "api server", "not reachable", "unreachable")


def check() -> None:
    """UnreachableError where the client is not on PATH."""
    if shutil.which("sky") is None:
        raise UnreachableError(f"sky, SkyPilot's client, is not on PATH: {NEEDS}")


def submit_words(file: Path, name: str, cluster: str) -> tuple[str, ...]:
    """The client's command. Pure."""
    kind = ("launch", "--cluster", cluster) if cluster else ("jobs", "launch")
    return ("sky", *kind, "--yes", "--detach-run", "--name", name, str(file))


def submit(file: Path, name: str, cluster: str) -> None:
    """Gives a task to SkyPilot: a managed job where `cluster` is empty. UsageError, or UnreachableError where no cloud
    is enabled or its server is not there, with its own words."""
    done = _run(_SUBMIT, *submit_words(file, name, cluster)[1:])
    if done.returncode != 0:
        said = own_words(f"{done.stdout}\n{done.stderr}")
        if any(words in said.lower() for words in _NOT_THERE):
            raise UnreachableError(f"SkyPilot has nowhere to run it: {said}")
        raise UsageError(f"SkyPilot refuses the task: {said}")


def state(name: str, cluster: str) -> JobState:
    """As SkyPilot's queue has it; UnreachableError where it does not answer."""
    done = _run(_ASK, *(("queue", cluster) if cluster else ("jobs", "queue", "--all")), "--output", "json")
    if done.returncode != 0:
        raise UnreachableError(f"SkyPilot does not answer: {own_words(done.stderr or done.stdout)}")
    return state_of(listed(done.stdout, cluster), name)


def cancel(name: str, cluster: str) -> None:
    """Ends a job. UsageError with SkyPilot's own words where it does not."""
    if not cluster:
        done = _run(_ASK, "jobs", "cancel", "--yes", "--name", name)
    else:
        found = _run(_ASK, "queue", cluster, "--output", "json")
        numbers = [str(one["job_id"]) for one in listed(found.stdout, cluster) if one.get("job_name") == name]
        done = _run(_ASK, "cancel", "--yes", cluster, *numbers[:1]) if numbers else found
    if done.returncode != 0:
        raise UsageError(f"SkyPilot does not cancel {name}: {own_words(done.stderr or done.stdout)}")


def listed(text: str, cluster: str) -> list[Mapping[str, Any]]:
    """The jobs of `sky jobs queue -o json`, or of a cluster's `sky queue -o json`; none in another text. Pure."""
    start = re.search(r"^[\[{]", text, re.MULTILINE)
    try:
        found = json.loads(text[start.start() :]) if start else []
    except ValueError:
        return []
    jobs = found.get(cluster, []) if isinstance(found, dict) else found
    return [one for one in jobs if isinstance(one, dict)]


def state_of(jobs: list[Mapping[str, Any]], name: str) -> JobState:
    """The newest job of that name. Pure."""
    mine = [one for one in jobs if name in (one.get("job_name"), one.get("task_name"))]
    if not mine:
        return JobState(where="unknown", words=f"SkyPilot's queue does not have {name}")
    job = max(mine, key=lambda one: int(one.get("job_id") or 0))
    status = str(job.get("status"))
    reason = " ".join(_STYLE.sub("", str(job.get("failure_reason") or "")).split())[:160]
    again = int(job.get("recovery_count") or 0)
    more = "; ".join(
        [*([f"begun again {again} time{'s' if again > 1 else ''}"] if again else []), *([reason] if reason else [])]
    )
    return JobState(
        where=_WHERE.get(status, "ended"),
        words=f"{status} ({more})" if more else status,
        exit_code=0 if status == "SUCCEEDED" else None,
        cancelled=status == "CANCELLED",
    )


def _run(seconds: float, *words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ("sky", *words), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
        )  # fmt: skip
    except FileNotFoundError:
        raise UnreachableError(f"sky, SkyPilot's client, is not on PATH: {NEEDS}") from None
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"`sky {' '.join(words[:2])}` does not come back within {seconds:.0f} s") from None
    except OSError as error:
        raise UnreachableError(f"sky cannot be started: {error}") from None


def own_words(text: str) -> str:
    """What the client said of its trouble, in one line: from its error on, without drawing. Pure."""
    lines = [line.strip() for line in _STYLE.sub("", text).splitlines() if line.strip(" │└├─╰⎿")]
    starts = [number for number, line in enumerate(lines) if re.search(r"\b\w*(Error|Exception)\b|^Error", line)]
    kept = lines[starts[-1] :] if starts else lines[-3:]
    said = " ".join(" ".join(kept).split())
    return re.sub(r"^(?:[a-z_]+\.)+(?=[A-Z])", "", said)[:400] or "it says nothing"
