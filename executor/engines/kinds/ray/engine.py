"""Ray's traits: settings, files, its client's words, and what the supervisor asks within a job."""

import importlib.util
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_plan.executor.engines.agents import guard
from gpu_plan.executor.engines.engine import JobState, Settings, Shape
from gpu_plan.executor.engines.kinds.ray import client
from gpu_plan.executor.engines.kinds.ray.exported import count, driver_text, resources_of
from gpu_plan.executor.engines.kinds.ray.group import ADDRESS, AGAIN, FAILURES, JOB, PLACES, STARTS, Wanted
from gpu_plan.executor.names import RUN_FILE
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UnreachableError
from gpu_plan.planner.own_python import ROOT, own_command, own_interpreter

_KEYS: Mapping[str, str] = {
    "address": "the cluster: http://HOST:8265 (its dashboard) or HOST:6379; default: RAY_ADDRESS, else this machine's",
    "cpus-per-node": "processors of each node that its ranks share; default: one for each rank",
    "max-failures": "how often Ray starts all of it again; default: 3 for a run, 0 for an export",
    "storage": "a folder that every node sees, for Ray Train's own files; default: the run folder",
    "python": "interpreter on the nodes that has this package; default: this one",
}
_FLAGS: Mapping[str, str] = {
    "requeue": "whether Ray starts the run again after a lost node (true; false)",
    "preflight": "whether every node is looked at before the first attempt (true; false)",
}
_FAILURES = "3"
_GUARD = str(guard.__file__)


class Ray:
    """See gpu_plan.executor.engines.engine."""

    name = "ray"
    title = "Ray"
    keys: Mapping[str, str] = {**_KEYS, **_FLAGS}
    flags = frozenset(_FLAGS)
    submit_file = "job.py"
    leaves: int | None = AGAIN
    ask_seconds = 3.0

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        return {self.submit_file: driver_text(shape, settings)}

    def command(self, folder: Path) -> Sequence[str]:
        return ("ray", "job", "submit", "--working-dir", str(folder), "--", "python", self.submit_file)

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  ray job submit --working-dir . -- python {self.submit_file}  (words behind it go to the script)",
            f"Or, on a machine of the cluster: python {self.submit_file}",
            "Look:    ray job list, ray job logs JOB",
            "End:     ray job stop JOB",
            "Every node needs torch and accelerate in Ray's own Python environment, and ray[train].",
        )

    def job_file(self, shape: Shape, settings: Settings, *, folder: Path, lead: Sequence[str], python_path: str) -> str:
        again = settings.flag("requeue", True)
        return driver_of(
            Wanted(
                nodes=shape.nodes,
                resources=resources_of(shape, settings),
                words=tuple(lead),
                setup=tuple(settings.setup),
                environment={**settings.environment, "PYTHONPATH": python_path},
                directory=str(folder.parent.parent.parent),
                log=str(folder / "engine.log"),
                folder=settings.values.get("storage", str(folder / "ray")),
                guard=_GUARD,
                failures=count(settings.values.get("max-failures", _FAILURES), "max-failures") if again else 0,
                record=str(folder.parent / RUN_FILE),
            ),
            python_path,
        )

    def check(self, settings: Settings) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UnreachableError(f"ray is not installed in {own_interpreter()}: {client.NEEDS}")
        client.connect(settings.values.get("address"))

    def submit(self, file: Path, settings: Settings) -> EngineJob:
        address = settings.values.get("address")
        found = client.connect(address)
        name, entry = f"plan-{file.parent.parent.name}", _entry(file, settings)
        number = client.submit(found, address, entry, {JOB: name}, name)
        return EngineJob(engine=self.name, job=number, where=str(found.get_address()))

    def submitting(self, file: Path, settings: Settings) -> Sequence[str]:
        address = settings.values.get("address")
        where = () if address is None else ("--address", address)
        return ("ray", "job", "submit", *where, "--no-wait", "--", "sh", "-c", _entry(file, settings))

    def state(self, job: EngineJob) -> JobState:
        try:
            return client.state(client.connect(job.where or None), job.where, job.job)
        except UnreachableError as error:
            return JobState(where="unknown", words=str(error))

    def cancel(self, job: EngineJob) -> None:
        client.stop(client.connect(job.where or None), job.where, job.job)

    def let_go(self, job: EngineJob) -> str:
        return ""

    def on_each_node(self, nodes: int) -> tuple[str, ...]:
        return (*own_command("gpu_plan.executor.engines.kinds.ray.nodes"), str(nodes), _GUARD)

    def from_outside(self, shape: Shape, settings: Settings) -> tuple[str, ...]:
        wanted = Wanted(
            nodes=shape.nodes,
            resources=resources_of(shape, settings),
            words=(),
            each=True,
            setup=tuple(settings.setup),
            environment={**settings.environment, "PYTHONPATH": ROOT},
            directory=os.getcwd(),
            folder=settings.values.get("storage", ""),
            guard=_GUARD,
        )
        address = settings.values.get("address", "")
        return (*own_command("gpu_plan.executor.engines.kinds.ray.outside"),
                settings.values.get("python", own_interpreter()), address, json.dumps(asdict(wanted)))  # fmt: skip

    def head(self) -> str:
        return str(json.loads(os.environ[PLACES])[0]["address"])

    def sweep(self) -> tuple[str, ...]:
        return ()  # its actors end with the process that made them, and what they started with them

    def restarts(self) -> int:
        return int(os.environ.get(STARTS, "0"))

    def job_number(self) -> str:
        return os.environ.get(JOB, "")

    def again(self) -> bool:
        return self.restarts() < int(os.environ.get(FAILURES, "0"))


def _entry(file: Path, settings: Settings) -> str:
    """Shell that starts a run's driver."""
    python = settings.values.get("python", own_interpreter())
    return f"exec {shlex.join([python, '-P', str(file)])} >> {shlex.quote(str(file.parent / 'driver.log'))} 2>&1"


def driver_of(wanted: Wanted, python_path: str) -> str:
    """Content of the driver's file. Pure."""
    values = json.dumps(asdict(wanted), indent=2)
    return (
        '"""Holds the nodes of a run by Ray Train: see gpu_plan.executor.engines.kinds.ray.group."""\n\n'
        "import json\nimport sys\n\n"
        f"sys.path.insert(0, {python_path!r})\n"
        "from gpu_plan.executor.engines.kinds.ray.group import Wanted, run\n\n"
        f"sys.exit(run(Wanted(**json.loads({values!r}))))\n"
    )


ENGINE = Ray()

__all__ = ["ADDRESS", "ENGINE", "Ray", "driver_of"]
