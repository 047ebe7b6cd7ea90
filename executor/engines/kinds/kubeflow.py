"""Kubeflow Trainer: a TrainJob (trainer.kubeflow.org/v1alpha1), and its files as a ConfigMap.

The runtime's torch plugin sets PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT on every node, which command.sh
reads. Fields are those of kubeflow-trainer-api 2.3: TrainJobSpec, Trainer, RuntimePatch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.planner.errors import UsageError

_KEYS: Mapping[str, str] = {
    "image": "container image with python, torch and accelerate; default: the runtime's own",
    "namespace": "where the job is made; default: the client's own",
    "runtime": "the training runtime; default: torch-distributed",
    "gpu-resource": "the devices' resource name; default: nvidia.com/gpu",
    "cpu": "processors of each node",
    "memory": "RAM of each node, such as 200Gi",
}
_MOUNT = "/opt/plan"
_LARGEST = 1_000_000
"""Bytes of a ConfigMap, a little under its own 1 MiB."""
_VOLUME, _CONTAINER = "plan", "node"


class Kubeflow:
    """See gpu_plan.executor.engines.engine."""

    name = "kubeflow"
    title = "Kubeflow Trainer"
    keys = _KEYS
    flags: frozenset[str] = frozenset()
    submit_file = "trainjob.yaml"

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        import yaml

        size = sum(len(text.encode()) for text in files.values())
        if size > _LARGEST:
            raise UsageError(f"the script and what it imports take {size:,} bytes, and a ConfigMap holds {_LARGEST:,}")
        documents = (config_map(shape, settings, files), train_job(shape, settings, files))
        return {self.submit_file: yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False)}

    def command(self, folder: Path) -> Sequence[str]:
        return ("kubectl", "create", "-f", str(folder / self.submit_file))

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  kubectl create -f {self.submit_file}    (the files of this folder are in it, as a ConfigMap)",
            f"Look:    kubectl get trainjob {shape.name}; kubectl logs -l jobset.sigs.k8s.io/jobset-name={shape.name}",
            f"End:     kubectl delete -f {self.submit_file}",
            "Checkpoints need a volume of yours: add it to runtimePatches in trainjob.yaml.",
        )


def config_map(shape: Shape, settings: Settings, files: Mapping[str, str]) -> dict[str, object]:
    """The folder's files; a key has no slash, so files are numbered, and mounted by their paths. Pure."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(f"{shape.name}-plan", settings),
        "data": {f"file-{number}": text for number, text in enumerate(files.values())},
    }


def _metadata(name: str, settings: Settings) -> dict[str, object]:
    space = settings.values.get("namespace")
    return {"name": name} if space is None else {"name": name, "namespace": space}


def train_job(shape: Shape, settings: Settings, files: Mapping[str, str]) -> dict[str, object]:
    """The TrainJob as plain values. Pure."""
    values = settings.values
    resource = values.get("gpu-resource", "nvidia.com/gpu")
    asked = {
        **({resource: str(shape.gpus_per_node)} if shape.gpus_per_node else {}),
        **{name: values[name] for name in ("cpu", "memory") if name in values},
    }
    lines = [*settings.setup, f"exec sh {_MOUNT}/command.sh"]
    paths = [{"key": f"file-{number}", "path": path} for number, path in enumerate(files)]
    trainer: dict[str, object] = {
        **({"image": values["image"]} if "image" in values else {}),
        "numNodes": shape.nodes,
        "numProcPerNode": shape.ranks_per_node,
        "command": ["sh", "-c", "\n".join(lines)],
        **({"resourcesPerNode": {"requests": asked, "limits": asked}} if asked else {}),
        **({"env": [{"name": name, "value": value} for name, value in sorted(settings.environment.items())]}
           if settings.environment else {}),
    }  # fmt: skip
    pod = {
        "volumes": [
            {"name": _VOLUME, "configMap": {"name": f"{shape.name}-plan", "items": paths}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "containers": [
            {
                "name": _CONTAINER,
                "volumeMounts": [
                    {"name": _VOLUME, "mountPath": _MOUNT},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
    }
    job = {"name": _CONTAINER, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(shape.name, settings),
        "spec": {
            "runtimeRef": {"name": values.get("runtime", "torch-distributed")},
            "trainer": trainer,
            "runtimePatches": [
                {
                    "manager": "gpu-plan.io/export",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
                }
            ],
        },
    }


ENGINE = Kubeflow()
