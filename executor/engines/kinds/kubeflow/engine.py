"""Kubeflow's traits: settings, files, its SDK's words. Each node of a run has an agent, the first the supervisor."""

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.agents.led import AGENT, Led, agent_lines
from gpu_plan.executor.engines.engine import JobState, Settings, Shape
from gpu_plan.executor.engines.kinds.kubeflow import client
from gpu_plan.executor.engines.kinds.kubeflow.exported import exported_documents, train_job
from gpu_plan.executor.engines.kinds.written import as_yaml
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.own_python import own_command, own_interpreter

_KEYS: Mapping[str, str] = {
    "image": "container image with python, torch and accelerate; default: the runtime's own",
    "namespace": "where the job is made; default: the client's own",
    "runtime": "the training runtime; default: torch-distributed",
    "gpu-resource": "the devices' resource name; default: nvidia.com/gpu",
    "cpu": "processors of each node",
    "memory": "RAM of each node, such as 200Gi",
    "volume": "of a run: the persistent volume claim that holds the working directory, which every pod mounts",
    "mount": "of a run: where it is mounted; default: the working directory's own path",
    "python": "of a run: the image's interpreter that has this package; default: python3",
    "backend": "of a run: kubernetes, or local for the SDK's local process; default: kubernetes",
}
_FLAGS: Mapping[str, str] = {
    "preflight": "whether every node is looked at before the first attempt (true; false)",
}
_LOCAL = "local"


class Kubeflow(Led):
    """See gpu_plan.executor.engines.engine."""

    name = "kubeflow"
    title = "Kubeflow Trainer"
    keys: Mapping[str, str] = {**_KEYS, **_FLAGS}
    flags = frozenset(_FLAGS)
    submit_file = "trainjob.yaml"

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        return {self.submit_file: as_yaml(*exported_documents(shape, settings, files))}

    def command(self, folder: Path) -> Sequence[str]:
        return ("kubectl", "create", "-f", str(folder / self.submit_file))

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  kubectl create -f {self.submit_file}    (the files of this folder are in it, as a ConfigMap)",
            f"Look:    kubectl get trainjob {shape.name}; kubectl logs -l jobset.sigs.k8s.io/jobset-name={shape.name}",
            f"End:     kubectl delete -f {self.submit_file}",
            "Checkpoints need a volume of yours: add it to runtimePatches in trainjob.yaml.",
        )

    def job_file(self, shape: Shape, settings: Settings, *, folder: Path, lead: Sequence[str], python_path: str) -> str:
        run = folder.parent
        if _is_local(settings):
            if shape.nodes > 1:
                raise UsageError(f"kubeflow.backend=local has one node, and the plan is for {shape.nodes}")
            return as_yaml({"words": _local_words(run)})
        if "volume" not in settings.values:
            raise UsageError(
                "--on kubeflow: --set kubeflow.volume=CLAIM names the persistent volume claim that holds this working"
                " directory: the script, its checkpoints and the run's records lie there"
            )
        # Of a run folder, by its own time and number: names are a namespace's, and lower case.
        named = Shape(
            name=f"{shape.name[:30]}-{run.name[-6:]}".lower(), nodes=shape.nodes, ranks_per_node=shape.ranks_per_node,
            gpu=shape.gpu,
        )  # fmt: skip
        directory = str(run.parent.parent)
        mount = settings.values.get("mount", directory)
        if Path(mount) not in (Path(directory), *Path(directory).parents):
            raise UsageError(f"kubeflow.mount={mount}: the working directory {directory} does not lie there")
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": settings.values["volume"]}}
        lines = [
            f"cd {shlex.quote(directory)}",
            *agent_lines(run, shape.nodes, settings.values.get("python", "python3"), log=folder / "engine.log"),
        ]
        return as_yaml(train_job(named, settings, lines, volume, mount))

    def check(self, settings: Settings) -> None:
        if importlib.util.find_spec("kubeflow") is None:
            raise UnreachableError(f"kubeflow is not installed in {own_interpreter()}: {client.NEEDS}")
        if settings.values.get("backend", "kubernetes") not in ("kubernetes", _LOCAL):
            raise UsageError(f"kubeflow.backend={settings.values['backend']}: write kubernetes or local")
        if not _is_local(settings):
            client.OnKubernetes(settings.values.get("namespace"))

    def submit(self, file: Path, settings: Settings) -> EngineJob:
        import yaml

        wanted = yaml.safe_load(file.read_text(encoding="utf-8"))
        run = file.parent.parent
        if _is_local(settings):
            name = client.start_local(wanted["words"], f"plan-{run.name[-6:]}")
            return EngineJob(engine=self.name, job=name, where=f"{_LOCAL}:{run}")
        cluster = client.OnKubernetes(settings.values.get("namespace"))
        return EngineJob(engine=self.name, job=cluster.create(wanted), where=cluster.namespace)

    def submitting(self, file: Path, settings: Settings) -> Sequence[str]:
        return _local_words(file.parent.parent) if _is_local(settings) else ("kubectl", "create", "-f", str(file))

    def state(self, job: EngineJob) -> JobState:
        try:
            if job.where.startswith(f"{_LOCAL}:"):
                return client.local_state(job.job, _marks(job))
            return client.OnKubernetes(job.where).state(job.job)
        except UnreachableError as error:
            return JobState(where="unknown", words=str(error))

    def cancel(self, job: EngineJob) -> None:
        if job.where.startswith(f"{_LOCAL}:"):
            client.end_local(_marks(job))
        else:
            client.OnKubernetes(job.where).delete(job.job)

    def let_go(self, job: EngineJob) -> str:
        if job.where.startswith(f"{_LOCAL}:"):
            return ""
        client.OnKubernetes(job.where).suspend(job.job)
        return f"TrainJob {job.job} is suspended: its pods would be started again though the run is over"

    def from_outside(self, shape: Shape, settings: Settings) -> tuple[str, ...]:
        raise UsageError("the doctor looks at nodes of SLURM and Ray; a run on Kubeflow looks at its own nodes first")


def _is_local(settings: Settings) -> bool:
    return settings.values.get("backend") == _LOCAL


def _local_words(run: Path) -> list[str]:
    return [*own_command(AGENT), str(run), "127.0.0.1", "0", "1", "0"]


def _marks(job: EngineJob) -> tuple[str, ...]:
    """Words of the job's agent."""
    return AGENT, job.where.partition(":")[2]


ENGINE = Kubeflow()
