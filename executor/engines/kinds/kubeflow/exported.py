"""Kubeflow Trainer: a TrainJob (trainer.kubeflow.org/v1alpha1), and its files as a ConfigMap.

The runtime's torch plugin sets PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT on every node, which command.sh
reads. Fields are those of kubeflow-trainer-api 2.3: TrainJobSpec, Trainer, RuntimePatch.
"""

from collections.abc import Mapping, Sequence

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.planner.errors import UsageError

_MOUNT = "/opt/plan"
_LARGEST = 1_000_000
"""Bytes of a ConfigMap, a little under its own 1 MiB."""
_VOLUME, _CONTAINER = "plan", "node"


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


def exported_documents(
    shape: Shape, settings: Settings, files: Mapping[str, str]
) -> tuple[dict[str, object], dict[str, object]]:
    """ConfigMap and TrainJob that need none of this package. Pure. UsageError for more than a ConfigMap holds."""
    size = sum(len(text.encode()) for text in files.values())
    if size > _LARGEST:
        raise UsageError(f"the script and what it imports take {size:,} bytes, and a ConfigMap holds {_LARGEST:,}")
    paths = [{"key": f"file-{number}", "path": path} for number, path in enumerate(files)]
    volume = {"name": _VOLUME, "configMap": {"name": f"{shape.name}-plan", "items": paths}}
    job = train_job(shape, settings, [f"exec sh {_MOUNT}/command.sh"], volume, _MOUNT)
    return config_map(shape, settings, files), job


def train_job(
    shape: Shape, settings: Settings, lines: Sequence[str], volume: Mapping[str, object], mount: str
) -> dict[str, object]:
    """The TrainJob as plain values; each node runs `lines` of shell. Pure."""
    values = settings.values
    resource = values.get("gpu-resource", "nvidia.com/gpu")
    asked = {
        **({resource: str(shape.gpus_per_node)} if shape.gpus_per_node else {}),
        **{name: values[name] for name in ("cpu", "memory") if name in values},
    }
    trainer: dict[str, object] = {
        **({"image": values["image"]} if "image" in values else {}),
        "numNodes": shape.nodes,
        "numProcPerNode": shape.ranks_per_node,
        "command": ["sh", "-c", "\n".join([*settings.setup, *lines])],
        **({"resourcesPerNode": {"requests": asked, "limits": asked}} if asked else {}),
        **({"env": [{"name": name, "value": value} for name, value in sorted(settings.environment.items())]}
           if settings.environment else {}),
    }  # fmt: skip
    pod = {
        "volumes": [dict(volume), {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": _CONTAINER,
                "volumeMounts": [
                    {"name": volume["name"], "mountPath": mount},
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
