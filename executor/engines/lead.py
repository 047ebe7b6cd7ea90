"""Inside a job that an engine runs: the supervisor of every run, its ranks placed on the job's nodes (I/O).

Started by the engine as `python -m gpu_plan.executor.engines.lead RUN_FOLDER`, once for each time that it gives the job
nodes; ends with the run's own exit code. A run that the engine starts anew goes on from its newest whole checkpoint.
"""

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.doctor.machine import findings_of
from gpu_plan.executor.engines.engine import Places
from gpu_plan.executor.engines.jobs import Submitted, ended_with, read_engine, read_job, write_engine
from gpu_plan.executor.engines.preflight.collect import look
from gpu_plan.executor.engines.registry import find_places
from gpu_plan.executor.job import Job, Placement
from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.names import PLAN_FILE
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import GOES_ON, Phase, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.causes.classify import LAUNCHER_FAILED
from gpu_plan.executor.supervise.limits import read_limits
from gpu_plan.executor.supervise.processes.alive import supervisor_alive
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.planner.errors import PlanError, PreflightError
from gpu_plan.planner.own_python import own_environment

_SOON = "SIGUSR1"
"""What an engine sends before the time limit."""
_OVERLAP = 20.0
"""Seconds that a supervisor needs to end its ranks and say so."""
_WAIT = 90.0
"""Seconds for the engine to take the nodes, once it has queued the job again."""


def main(folder: Path) -> int:
    """Supervises the run in `folder` and gives its exit code."""
    run = RunFolder(folder)
    given, job = read_job(run)
    engine = find_places(given.engine)
    restarts = engine.restarts() or _starts_before(run)
    record = _after_its_predecessor(run) if restarts else run.read_run()
    here = _noted(run, engine)
    over = ended_with(record)
    if over is not None:
        return over  # before the engine began again
    job = replace(job, placement=_placement(engine, given))
    since = record.updated if restarts else given.submitted
    if given.preflight and not record.attempts:
        _look_at_nodes(run, job, engine, given)
    queued = Phase(name="queued", seconds=max(0.0, time.time() - since))
    continued = _taken_back(record, engine, restarts) if record.attempts else record
    ended = supervise(
        job,
        folder=run,
        observe=PlainView(sys.stdout, sys.stderr),
        limits=read_limits({}, given.hang_seconds),
        phases=() if record.attempts else (queued,),
        continued=continued,
    )
    last = ended.attempts[-1] if ended.attempts else None
    if last is not None and last.cause == "interrupted" and _SOON in last.explanation:
        return _queue_again(run, ended, f"{engine.title}'s time limit came", engine, given, here)
    if _nodes_are_lost(ended, job.max_restarts):
        return _queue_again(run, ended, ended.attempts[-1].explanation, engine, given, here)
    return ended.exit_code if ended.exit_code is not None else LAUNCHER_FAILED


def _starts_before(run: RunFolder) -> int:
    """As the record tells: a new pod or a new machine does not know that there was one before it."""
    attempts = run.read_run().attempts
    return 1 + sum(attempt.cause == "requeued" for attempt in attempts) if attempts else 0


def _after_its_predecessor(run: RunFolder) -> RunRecord:
    """The record, once the supervisor of the start before has written its last: an engine may begin a run again while
    it still ends its ranks. One that went with its node writes nothing any more."""
    until = time.monotonic() + _OVERLAP
    while (record := run.read_run()).status in GOES_ON and time.monotonic() < until:
        if time.time() - record.updated > _OVERLAP and not supervisor_alive(record):
            break
        time.sleep(0.5)
    return record


def _noted(run: RunFolder, engine: Places) -> EngineJob:
    """Which job this is, kept for `plan cancel` from anywhere: whoever submitted it may not have come to that yet."""
    known = read_engine(run)
    number = engine.job_number() or (known.job if known else "")
    found = EngineJob(engine=engine.name, job=number, where=known.where if known else "")
    if number:
        write_engine(run, found)
    return found


def _look_at_nodes(run: RunFolder, job: Job, engine: Places, given: Submitted) -> None:
    """Warnings are said; PreflightError for the first error, with which the run ends."""
    folder = run.engine / "nodes"
    folder.mkdir(exist_ok=True)
    (folder / PLAN_FILE).write_bytes(run.plan.read_bytes())
    start = engine.on_each_node(given.nodes)
    environment = own_environment({**os.environ, **job.environment}, directory=job.working_directory)
    checks = look(folder, engine.name, given.nodes, start, environment)
    findings = findings_of(checks)
    for finding in findings:
        print(f"plan: {finding.severity}: {finding.place}: {finding.what}", file=sys.stderr, flush=True)
    error = next((finding for finding in findings if finding.severity == "error"), None)
    if error is not None:
        message = f"{error.place}: {error.what}; {error.fix}"
        now = time.time()
        ended = replace(run.read_run(), status="failed", exit_code=4, ended=now, updated=now, message=message)
        run.write_run(ended)
        raise PreflightError(message)


def _placement(engine: Places, given: Submitted) -> Placement:
    return Placement(
        engine=engine.name,
        start=engine.on_each_node(given.nodes),
        head=engine.head() if given.nodes > 1 else "",
        sweep=engine.sweep(),
    )


def _taken_back(record: RunRecord, engine: Places, restarts: int) -> RunRecord:
    """The record in which the last attempt ended because the engine took its nodes back, as this new start shows."""
    last = record.attempts[-1]
    if last.cause not in (None, "interrupted"):
        return record
    again = f"{engine.title} took the nodes back and started the job again (start {restarts + 1})"
    said = f"{again}; {last.explanation}" if last.explanation else again
    ended = replace(last, ended=last.ended or record.updated, cause="requeued", explanation=said)
    return replace(record, attempts=(*record.attempts[:-1], ended))


def _nodes_are_lost(ended: RunRecord, most: int) -> bool:
    """Whether the nodes are the reason: one went, or none takes a launcher though they did before."""
    attempts = ended.attempts
    if attempts and attempts[-1].cause == "node_lost":
        return True
    idle = 0
    while idle < len(attempts) and attempts[-1 - idle].cause == "launcher" and not attempts[-1 - idle].phases:
        idle += 1
    return 0 < idle <= most and idle < len(attempts)


def _queue_again(run: RunFolder, ended: RunRecord, why: str, engine: Places, given: Submitted, here: EngineJob) -> int:
    """The job goes back to the queue, unless it may not. Ends with the exit code of a run that does not go on."""
    code = ended.exit_code if ended.exit_code is not None else LAUNCHER_FAILED
    if not given.requeue:
        run.write_run(replace(ended, message=f"{why}; {engine.name}.requeue=false: it is not queued again"))
        return code
    last = ended.attempts[-1]
    closed = replace(last, cause="requeued", explanation=why) if last.cause == "interrupted" else last
    waiting = replace(
        ended, status="queued", ended=None, exit_code=None, message=f"{why}: queued again",
        attempts=(*ended.attempts[:-1], closed),
    )  # fmt: skip
    run.write_run(waiting)
    if engine.again() or (engine.leaves is None and engine.state(here).where == "queued"):
        print(f"plan: {why}: queued again", file=sys.stderr, flush=True)
        if engine.leaves is not None:
            return engine.leaves
        time.sleep(_WAIT)  # the engine ends this process when it takes the nodes
    run.write_run(replace(ended, message=f"{why}, and {engine.title} does not queue the job again"))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except PlanError as problem:
        print(f"plan: error: {problem} ({socket.gethostname()})", file=sys.stderr)
        sys.exit(int(problem.exit_code))
