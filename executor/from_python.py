"""`executor.run(plan, script)`: a plan executed from Python, in a notebook or a test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.errors import PlanError, UsageError
from gpu_plan.planner.job.checks import check_machine, check_plan
from gpu_plan.planner.notebook import shown
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.plan.files import load_any
from gpu_plan.planner.plan.saved import SavedPlan, saved_plan

Plan = SavedPlan | PlanDocument | str | Path


class RunFailedError(PlanError):
    """A run ended otherwise than well; raised by `RunResult.check` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended, and where its records are."""

    record: RunRecord
    plan: SavedPlan
    folder: Path
    ranks: tuple[RankRecord, ...] = field(default=(), repr=False)
    """Of the latest attempt, in rank order."""

    @property
    def succeeded(self) -> bool:
        """Whether every rank ended well."""
        return self.record.succeeded

    @property
    def exit_code(self) -> int | None:
        """What `plan --execute` would have ended with."""
        return self.record.exit_code

    @property
    def losses(self) -> tuple[float, ...]:
        """Loss of each recorded step, as rank 0 saw it; steps without one are left out."""
        steps = self.ranks[0].steps if self.ranks else ()
        return tuple(step.loss for step in steps if step.loss is not None)

    def _repr_html_(self) -> str | None:
        from gpu_plan.executor.records.whole import WholeRun

        whole = WholeRun(
            folder=str(self.folder), record=self.record, plan=self.plan, ranks=self.ranks, supervisor_alive=True
        )
        return shown("run_fragment", whole)

    def check(self) -> "RunResult":
        """Itself; RunFailedError in one line where the run did not succeed."""
        if not self.succeeded:
            raise RunFailedError(f"{self.record.run_id} {self.record.status}: {self.record.message}; see {self.folder}")
        return self


def run(
    plan: Plan,
    script: str | Path | Callable[..., object],
    arguments: Sequence[object] = (),
    *,
    working_directory: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    max_restarts: int = 3,
    check_parameters: bool = True,
    allow_deviation: bool = False,
    stop_on_nan: bool = False,
) -> RunResult:
    """Executes `plan` with a script, or with a function as Accelerate's `notebook_launcher` runs it.

    `plan`: what `plan ... --save` wrote (loaded, or its path), or a plan document, whose best plan is taken.
    `arguments`: the script's words, or the function's positional arguments. A function is run once: it is neither
    resumed nor replanned, and no hang is looked for; it must not have used a GPU in this process before.
    `allow_deviation`, `stop_on_nan`: as on the command line, for a script.

    Raises a PlanError for a plan or script that cannot be run at all: for other GPUs than this machine's, or read from
    a path and stale. A run that fails is told by the result.
    """
    from gpu_plan.executor.job import Job
    from gpu_plan.executor.run_folder import RunFolder

    saved = _saved(plan)
    where = Path.cwd() if working_directory is None else Path(working_directory).absolute()
    if callable(script):
        if saved.cluster["nodes"] == 1:  # several are refused below, whatever they are
            check_machine(saved)
        from gpu_plan.executor.function_job import run_function

        record = run_function(saved, script, tuple(arguments), where, environment or {}, check_parameters)
    else:
        from gpu_plan.executor.script.read import read_script
        from gpu_plan.executor.supervise.supervisor import supervise

        read_script((where / script).absolute())
        check_machine(saved)
        job = Job(
            saved=saved,
            script=(where / script).absolute(),
            arguments=tuple(str(word) for word in arguments),
            working_directory=where,
            max_restarts=max_restarts,
            environment=dict(environment or {}),
            check_parameters=check_parameters,
            allow_deviation=allow_deviation,
            stop_on_nan=stop_on_nan,
        )
        record = supervise(job)
    from gpu_plan.executor.names import RUNS_FOLDER

    folder = RunFolder(where / RUNS_FOLDER / record.run_id)
    return RunResult(record=record, plan=saved, folder=folder.path, ranks=tuple(folder.ranks()))


def _saved(plan: Plan) -> SavedPlan:
    if isinstance(plan, (str, Path)):
        path, plan = plan, load_any(plan)
        if isinstance(plan, SavedPlan):
            check_plan(plan, str(path))
    if isinstance(plan, SavedPlan):
        return plan
    if plan.best is None:
        raise UsageError("nothing in this plan document fits: there is no plan to run")
    return saved_plan(plan)
