"""SLURM: sbatch, srun, scontrol, scancel; no accounting daemon is asked.

Options of the submit file are those of sbatch(1), 22.05. Inside the job, the batch script's node is the first of the
allocation, and `srun` starts one launcher on each.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.engine import JobState, Settings, Shape, Where
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UnreachableError, UsageError

_DIRECTIVES: Mapping[str, str] = {
    "partition": "the queue",
    "time": "limit of wall time: 30, 12:00:00, 2-00:00:00",
    "account": "who pays",
    "qos": "quality of service",
    "constraint": "features that the nodes must have",
    "reservation": "a reservation's name",
    "nodelist": "these nodes",
    "exclude": "not these nodes",
    "mem": "RAM of each node, such as 0 for all of it or 200G",
    "cpus-per-task": "processors of each node that its ranks share",
    "gres": "generic resources of each node, in place of gpus-per-node",
    "gpus-per-node": "devices as the site calls them, such as h100:8; default: the plan's number",
    "licenses": "licences",
    "begin": "not before",
    "dependency": "after which other jobs",
    "mail-type": "when to write a mail",
    "mail-user": "to whom",
    "comment": "words for the queue",
    "job-name": "as the queue shows it; default: the script's name",
    "network": "of the interconnect",
    "switches": "how many leaf switches at most",
    "wckey": "a key for accounting",
    "nice": "lower priority",
    "ntasks-per-core": "hardware threads",
}
_FLAGS: Mapping[str, str] = {
    "exclusive": "no other job on the nodes (true, false)",
    "requeue": "whether the job is queued again after a lost node or its time limit (true; false)",
    "preflight": "whether every node is looked at before the first attempt (true; false)",
}
_OWN: Mapping[str, str] = {
    "signal": "seconds before the time limit at which a run ends its attempt, to be queued again; default: 120",
    "python": "interpreter on the nodes that has this package; default: this one",
    "srun": "more words for srun, such as --container-image=...",
}
_TIMEOUT = 60.0
_NO_CONTROLLER = "Unable to contact slurm controller"  # slurm/slurm_errno.h, slurm_strerror
_DEFAULT_SIGNAL = 120
_ENDED = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
_GOES_ON = frozenset(("RUNNING", "COMPLETING", "STOPPED", "SUSPENDED", "SIGNALING", "STAGE_OUT", "RESIZING"))
# The script that sbatch runs is a copy in the daemon's own folder: where it was submitted from, the controller knows.
_HERE = """\
here=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=//p' | head -n 1)
case "$here" in /*) ;; *) here=$SLURM_SUBMIT_DIR/$here ;; esac
here=${here%/job.sbatch*}
"""
_MEET = """\
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PET_MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p' | head -n 1)
PET_MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export PET_MASTER_ADDR PET_MASTER_PORT
"""
_ON_NODE = 'export PET_NODE_RANK=$SLURM_NODEID; exec "$@"'


class Slurm:
    """See gpu_plan.executor.engines.engine."""

    name = "slurm"
    title = "SLURM"
    keys: Mapping[str, str] = {**_DIRECTIVES, **_FLAGS, **_OWN}
    flags = frozenset(_FLAGS)
    submit_file = "job.sbatch"
    leaves: int | None = None
    ask_seconds = 3.0

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        srun = " ".join(_srun(shape.nodes, settings))
        lines = [
            "#!/bin/bash",
            *_directives(shape, settings, requeue=settings.flag("requeue", False)),
            "set -e",
            _HERE.rstrip(),
            _MEET.rstrip(),
            *settings.setup,
            *_exports(settings.environment),
            f'{srun} sh -c {shlex.quote(_ON_NODE)} sh sh "$here/command.sh" "$@"',
        ]
        return {self.submit_file: "\n".join(lines) + "\n"}

    def command(self, folder: Path) -> Sequence[str]:
        return ("sbatch", str(folder / self.submit_file))

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  sbatch {self.submit_file}    (words behind it go to the script)",
            "Look:    squeue --me; the output is in slurm-JOB.out, in the folder that you submitted from",
            "End:     scancel JOB",
            "Every node must see this folder and have python with torch and accelerate on its PATH: lines that make",
            f"it so (module load, conda activate) go into {self.submit_file} before srun.",
        )

    def job_file(self, shape: Shape, settings: Settings, *, folder: Path, lead: Sequence[str], python_path: str) -> str:
        before = int(_number(settings.values.get("signal", str(_DEFAULT_SIGNAL)), "signal"))
        lines = [
            "#!/bin/bash",
            *_directives(shape, settings, requeue=settings.flag("requeue", True)),
            # To the batch script alone, which is the supervisor: it ends the attempt and has the job queued again.
            f"#SBATCH --signal=B:USR1@{before}",
            "#SBATCH --open-mode=append",
            f"#SBATCH --output={_directive_value(str(folder / 'engine.log'), 'the run folder')}",
            *settings.setup,
            *_exports(settings.environment),
            *([f"export GPU_PLAN_SRUN={shlex.quote(settings.values['srun'])}"] if "srun" in settings.values else []),
            f"run={shlex.quote(str(folder))}",
            '[ -e "$run/job.json" ] || { echo "plan: $run is not on $(hostname): runs/ must lie on storage that every'
            ' node shares" >&2; exit 4; }',
            f"PYTHONPATH={shlex.quote(python_path)} exec {shlex.join(lead)}",
        ]
        return "\n".join(lines) + "\n"

    def check(self, settings: Settings) -> None:
        for command in ("sbatch", "scontrol", "scancel"):
            if shutil.which(command) is None:
                raise UnreachableError(f"{command} is not on PATH: run this where SLURM's client is, or `--to slurm`")

    def submit(self, file: Path, settings: Settings) -> EngineJob:
        done = _run(*self.submitting(file, settings))
        if done.returncode != 0:
            said = _own_words(done.stderr)
            if _NO_CONTROLLER in said:
                raise UnreachableError(f"SLURM does not answer: {said}")
            raise UsageError(f"SLURM refuses the job: {said}")
        return EngineJob(engine=self.name, job=done.stdout.strip().partition(";")[0])

    def submitting(self, file: Path, settings: Settings) -> Sequence[str]:
        return ("sbatch", "--parsable", str(file))

    def state(self, job: EngineJob) -> JobState:
        try:
            done = _run("scontrol", "show", "job", job.job, "--oneliner")
        except UnreachableError as error:
            return JobState(where="unknown", words=str(error))
        if done.returncode != 0:
            gone = "Invalid job id" in done.stderr
            return JobState(where="ended" if gone else "unknown", words=_own_words(done.stderr))
        return parse_state(done.stdout)

    def cancel(self, job: EngineJob) -> None:
        done = _run("scancel", "--verbose", job.job)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise UsageError(f"SLURM does not cancel job {job.job}: {_own_words(done.stderr)}")

    def let_go(self, job: EngineJob) -> str:
        return ""

    def on_each_node(self, nodes: int) -> tuple[str, ...]:
        more = shlex.split(os.environ.get("GPU_PLAN_SRUN", ""))
        words = (*_srun(nodes, Settings()), *more)
        return (*words, "sh", "-c", _ON_NODE, "sh")

    def from_outside(self, shape: Shape, settings: Settings) -> tuple[str, ...]:
        # srun takes the same options as sbatch's lines.
        given = [line.removeprefix("#SBATCH ") for line in _directives(shape, settings, requeue=False)]
        words = [word for line in given for word in shlex.split(line) if not word.endswith("requeue")]
        lines = "\n".join([*settings.setup, *_exports(settings.environment), _ON_NODE])
        more = shlex.split(settings.values.get("srun", ""))
        return ("srun", f"--ntasks={shape.nodes}", *words, *more, "sh", "-c", lines, "sh")

    def head(self) -> str:
        first = _run("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")).stdout.split()[:1]
        node = _run("scontrol", "show", "node", *first).stdout
        found = re.search(r"NodeAddr=(\S+)", node)
        return found[1] if found else (first or ["127.0.0.1"])[0]

    def sweep(self) -> tuple[str, ...]:
        steps = 'squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i | grep -E "\\.[0-9]+$"'
        return ("sh", "-c", f"{steps} | xargs -r scancel --signal=KILL")

    def restarts(self) -> int:
        text = os.environ.get("SLURM_RESTART_COUNT", "0")
        return int(text) if text.isdigit() else 0

    def job_number(self) -> str:
        return os.environ.get("SLURM_JOB_ID", "")

    def again(self) -> bool:
        return _run("scontrol", "requeue", self.job_number()).returncode == 0


def parse_state(text: str) -> JobState:
    """From `scontrol show job JOB --oneliner`."""
    fields = dict(re.findall(r"(\w+)=(\S*)", text))
    state, reason = fields.get("JobState", ""), fields.get("Reason", "None")
    words = state if reason in ("None", "") else f"{state} ({reason})"
    nodes = fields.get("NodeList", "")
    if state == "RUNNING" and nodes not in ("", "(null)"):
        words = f"{state} on {nodes}"
    where: Where = "ended" if state in _ENDED else "running" if state in _GOES_ON else "queued"
    if state == "COMPLETING" or not state:
        where = "unknown" if not state else "running"
    code, _, number = fields.get("ExitCode", "").partition(":")
    exit_code = None
    if where == "ended" and code.isdigit():
        exit_code = 128 + int(number) if number.isdigit() and int(number) else int(code)
    return JobState(where=where, words=words, exit_code=exit_code, cancelled=state == "CANCELLED")


def _directives(shape: Shape, settings: Settings, *, requeue: bool) -> list[str]:
    counted = shape.gpus_per_node > 0 and "gres" not in settings.values
    values = {
        "job-name": shape.name,
        "nodes": str(shape.nodes),
        "ntasks-per-node": "1",
        **({"gpus-per-node": str(shape.gpus_per_node)} if counted else {}),
        **{key: value for key, value in settings.values.items() if key in _DIRECTIVES},
    }
    lines = [f"#SBATCH --{key}={_directive_value(value, key)}" for key, value in values.items()]
    if settings.flag("exclusive", False):
        lines.append("#SBATCH --exclusive")
    lines.append("#SBATCH --requeue" if requeue else "#SBATCH --no-requeue")
    return lines


def _directive_value(value: str, key: str) -> str:
    """As sbatch reads it: quoted where it has a space; UsageError for what it has no way to say."""
    if '"' in value or "\\" in value or "#" in value:
        raise UsageError(f"slurm.{key}: {value!r} has a quote, a backslash or a #, which no #SBATCH line can hold")
    return f'"{value}"' if re.search(r"[\s']", value) else value


def _srun(nodes: int, settings: Settings) -> tuple[str, ...]:
    more = shlex.split(settings.values.get("srun", ""))
    # Of a step, sbatch's --gpus-per-node holds by itself; --mem=0 and CPUs are the job's.
    return ("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *more)


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]


def _number(text: str, key: str) -> str:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise UsageError(f"slurm.{key}={text}: a number of seconds from 1 to 65535")
    return text


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    """UnreachableError where the command is not there or does not answer."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise UnreachableError(f"{words[0]} is not on PATH: SLURM's client is needed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"{words[0]} does not answer: {error}") from None


def _own_words(text: str) -> str:
    """What SLURM said, in one line."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line).strip() for line in text.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines)) or "it says nothing"


ENGINE = Slurm()
