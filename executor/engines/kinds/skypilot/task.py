"""SkyPilot's task as plain values (its YAML, sky/utils/schemas.py: get_task_schema, get_resources_schema)."""

from collections.abc import Mapping, Sequence

from gpu_plan.executor.engines.engine import Settings, Shape

RESOURCES: Mapping[str, str] = {
    "infra": "where, such as aws/us-east-1, k8s or slurm/CLUSTER; default: the cheapest",
    "accelerators": "devices of each node as SkyPilot calls them, such as H100:8; default: the plan's",
    "instance-type": "a machine by its cloud's name",
    "cpus": "processors of each node, such as 16+",
    "memory": "RAM of each node in GB, such as 200+",
    "disk-size": "GB",
    "image-id": "a machine or container image, such as docker:...",
    "use-spot": "machines that may be taken back (true, false): for `sky jobs launch`, which starts anew",
}
"""Settings that are resources of the task."""
FLAGS = frozenset({"use-spot"})
"""Those of them that are `true` or `false`."""
MEET = """\
export PET_MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"
export PET_MASTER_PORT=29500
export PET_NODE_RANK="$SKYPILOT_NODE_RANK"
"""
"""Shell that says where the nodes meet, and which this is (sky/skylet/constants.py: SKYPILOT_NODE_IPS)."""


def exported_task(shape: Shape, settings: Settings) -> dict[str, object]:
    """A task whose nodes each run the folder's command.sh. Pure."""
    return {
        "name": shape.name,
        "workdir": ".",
        **_nodes(shape, settings, {}),
        **({"setup": "\n".join(settings.setup) + "\n"} if settings.setup else {}),
        "run": f"{MEET}exec sh command.sh\n",
    }


def run_task(
    shape: Shape, settings: Settings, lines: Sequence[str], *, name: str, restarts: int | None, mount: str
) -> dict[str, object]:
    """A task whose nodes each run `lines`, `setup` before them: it counts for what a node comes back with, too. Pure.

    `restarts`: how often a managed job begins again that failed by itself; None for a job that is not managed.
    """
    recovery = {} if restarts is None else {"job_recovery": {"max_restarts_on_errors": restarts}}
    volume = settings.values.get("volume")
    return {
        "name": name,
        **_nodes(shape, settings, recovery),
        **({"volumes": {mount: volume}} if volume is not None else {}),
        "run": MEET + "\n".join([*settings.setup, *lines]) + "\n",
    }


def _nodes(shape: Shape, settings: Settings, more: Mapping[str, object]) -> dict[str, object]:
    resources: dict[str, object] = {}
    if shape.gpu is not None and "instance-type" not in settings.values:
        resources["accelerators"] = f"{shape.gpu}:{shape.gpus_per_node}"
    for key in RESOURCES:
        if key in settings.values:
            value = settings.values[key]
            resources[key.replace("-", "_")] = value == "true" if key in FLAGS else value
    if "disk_size" in resources and str(resources["disk_size"]).isdigit():
        resources["disk_size"] = int(str(resources["disk_size"]))
    resources |= more
    return {
        "num_nodes": shape.nodes,
        **({"resources": resources} if resources else {}),
        **({"envs": dict(sorted(settings.environment.items()))} if settings.environment else {}),
    }
