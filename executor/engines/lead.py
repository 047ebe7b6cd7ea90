"""Inside a job that an engine runs: the supervisor of every run, its ranks placed on the job's nodes (I/O).

Started by the engine as `python -m gpu_plan.executor.engines.lead RUN_FOLDER`, once for each time that it gives the job
nodes; ends with the run's own exit code. A run that the engine starts anew goes on from its newest whole checkpoint.
"""

import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.engines.engine import Runs
from gpu_plan.executor.engines.jobs import Submitted, read_job, write_engine
from gpu_plan.executor.engines.registry import find_running
from gpu_plan.executor.job import Placement
from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import Attempt, Phase, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.causes.classify import LAUNCHER_FAILED
from gpu_plan.executor.supervise.limits import read_limits
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.planner.errors import PlanError

_SOON = "SIGUSR1"
"""What an engine sends before the time limit."""
_TAKEN_BACK = ("SIGTERM", _SOON)


def main(folder: Path) -> int:
    """Supervises the run in `folder` and gives its exit code."""
    run = RunFolder(folder)
    given, job = read_job(run)
    engine = find_running(given.engine)
    record = run.read_run()
    write_engine(run, EngineJob(engine=engine.name, job=engine.job_number()))
    restarts = engine.restarts()
    if record.ended is not None and record.status != "interrupted" and record.exit_code is not None:
        return record.exit_code  # it was over before the engine began again
    job = replace(job, placement=_placement(engine, given))
    since = record.updated if restarts else given.submitted
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
        return _queue_again(run, ended, last, engine, given)
    return ended.exit_code if ended.exit_code is not None else LAUNCHER_FAILED


def _placement(engine: Runs, given: Submitted) -> Placement:
    return Placement(
        engine=engine.name,
        start=engine.on_each_node(given.nodes),
        head=engine.head() if given.nodes > 1 else "",
        sweep=engine.sweep(),
    )


def _taken_back(record: RunRecord, engine: Runs, restarts: int) -> RunRecord:
    """The record in which the last attempt ended because the engine took its nodes back, as this new start shows."""
    last = record.attempts[-1]
    if last.ended is not None and last.cause not in (None, "interrupted"):
        return record
    again = f"{engine.title} took the nodes back and started the job again (start {restarts + 1})"
    said = f"{again}; {last.explanation}" if last.explanation else again
    ended = replace(last, ended=last.ended or record.updated, cause="requeued", explanation=said)
    return replace(record, attempts=(*record.attempts[:-1], ended))


def _queue_again(run: RunFolder, ended: RunRecord, last: Attempt, engine: Runs, given: Submitted) -> int:
    """The time is nearly over: the job goes back to the queue, unless it may not."""
    code = ended.exit_code if ended.exit_code is not None else LAUNCHER_FAILED
    said = f"{engine.title}'s time limit came"
    if given.requeue:
        closed = replace(last, cause="requeued", explanation=said)
        waiting = replace(
            ended, status="queued", ended=None, exit_code=None, message=f"{said}: queued again",
            attempts=(*ended.attempts[:-1], closed),
        )  # fmt: skip
        run.write_run(waiting)
        if engine.again():
            print(f"plan: {said}: queued again", file=sys.stderr, flush=True)
            time.sleep(60)  # the engine ends this process when it takes the nodes
            return code
        said += f", and {engine.title} does not queue the job again"
    run.write_run(replace(ended, message=said))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except PlanError as problem:
        print(f"plan: error: {problem} ({socket.gethostname()})", file=sys.stderr)
        sys.exit(int(problem.exit_code))
