"""SkyPilot's traits: settings, files, its client's words. Each node of a run has an agent, the first the supervisor.

Where machines are taken back, SkyPilot's managed jobs begin the task again on others: the agents meet anew, and the run
goes on from its newest whole checkpoint.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.agents.led import Led, agent_lines
from gpu_plan.executor.engines.engine import JobState, Settings, Shape
from gpu_plan.executor.engines.kinds.skypilot import client
from gpu_plan.executor.engines.kinds.skypilot.task import FLAGS, RESOURCES, exported_task, run_task
from gpu_plan.executor.engines.kinds.written import as_yaml
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.own_python import own_interpreter

_KEYS: Mapping[str, str] = {
    "volume": "of a run: SkyPilot's volume that holds the working directory, which every node mounts",
    "mount": "of a run: where it is mounted; default: the working directory's own path",
    "cluster": "of a run: a cluster of SkyPilot by its name, where it is not managed; default: a managed job",
    "max-restarts": "of a managed job: how often it begins again that failed by itself; default: 0",
    "python": "of a run: the nodes' interpreter that has this package; default: this one where `shared`, else python3",
}
_FLAGS: Mapping[str, str] = {
    "shared": "of a run: the nodes see the working directory at its own path by themselves (true; false)",
    "requeue": "whether the run goes on where SkyPilot begins its job again (true; false)",
    "preflight": "whether every node is looked at before the first attempt (true; false)",
}


class SkyPilot(Led):
    """See gpu_plan.executor.engines.engine. `job` is the job's name, `where` its cluster."""

    name = "skypilot"
    title = "SkyPilot"
    keys: Mapping[str, str] = {**RESOURCES, **_KEYS, **_FLAGS}
    flags = FLAGS | frozenset(_FLAGS)
    submit_file = "task.yaml"
    ask_seconds = 15.0

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        return {self.submit_file: as_yaml(exported_task(shape, settings))}

    def command(self, folder: Path) -> Sequence[str]:
        return ("sky", "launch", "--workdir", str(folder), str(folder / self.submit_file))

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  sky launch {self.submit_file}, in this folder; on spot machines: sky jobs launch",
            "Look:    sky queue, sky logs; sky jobs queue, sky jobs logs",
            "End:     sky cancel, sky down; sky jobs cancel",
            "`setup` of task.yaml makes python with torch and accelerate, where the image has none.",
        )

    def job_file(self, shape: Shape, settings: Settings, *, folder: Path, lead: Sequence[str], python_path: str) -> str:
        run, values = folder.parent, settings.values
        shared = settings.flag("shared", False)
        if shared == ("volume" in values):
            raise UsageError(
                "--on skypilot: the script, its checkpoints and the run's records lie in this working directory, which"
                " every node must see: --set skypilot.volume=NAME names SkyPilot's volume that holds it, or"
                " --set skypilot.shared=true says that the nodes see it by themselves"
            )
        directory = run.parent.parent
        mount = values.get("mount", str(directory))
        if Path(mount) not in (directory, *directory.parents):
            raise UsageError(f"skypilot.mount={mount}: the working directory {directory} does not lie there")
        python = values.get("python", own_interpreter() if shared else "python3")
        lines = [
            f"cd {shlex.quote(str(directory))} || exit 4",
            *agent_lines(run, shape.nodes, python, log=folder / "engine.log"),
        ]
        task = run_task(
            shape, settings, lines, name=_job_name(run), restarts=None if "cluster" in values else _restarts(settings),
            mount=mount,
        )  # fmt: skip
        return as_yaml(task)

    def check(self, settings: Settings) -> None:
        client.check()
        _restarts(settings)

    def submit(self, file: Path, settings: Settings) -> EngineJob:
        name, cluster = _job_name(file.parent.parent), settings.values.get("cluster", "")
        client.submit(file, name, cluster)
        return EngineJob(engine=self.name, job=name, where=cluster)

    def submitting(self, file: Path, settings: Settings) -> Sequence[str]:
        return client.submit_words(file, _job_name(file.parent.parent), settings.values.get("cluster", ""))

    def state(self, job: EngineJob) -> JobState:
        try:
            return client.state(job.job, job.where)
        except UnreachableError as error:
            return JobState(where="unknown", words=str(error))

    def cancel(self, job: EngineJob) -> None:
        client.cancel(job.job, job.where)

    def from_outside(self, shape: Shape, settings: Settings) -> tuple[str, ...]:
        raise UsageError("the doctor looks at nodes of SLURM and Ray; a run on SkyPilot looks at its own nodes first")


def _job_name(run: Path) -> str:
    """Of a run folder, by its own time and number."""
    return f"plan-{run.name}".lower()


def _restarts(settings: Settings) -> int:
    text = settings.values.get("max-restarts", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise UsageError(f"skypilot.max-restarts={text}: a whole number")
    return int(text)


ENGINE = SkyPilot()
