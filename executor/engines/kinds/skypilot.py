"""SkyPilot: a task (its YAML, sky/utils/schemas.py: get_task_schema) whose nodes each run command.sh."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.engine import Settings, Shape

_RESOURCES: Mapping[str, str] = {
    "infra": "where, such as aws/us-east-1 or k8s; default: the cheapest",
    "accelerators": "devices of each node as SkyPilot calls them, such as H100:8; default: the plan's",
    "instance-type": "a machine by its cloud's name",
    "cpus": "processors of each node, such as 16+",
    "memory": "RAM of each node in GB, such as 200+",
    "disk-size": "GB",
    "image-id": "a machine or container image, such as docker:...",
    "use-spot": "machines that may be taken back (true, false): for `sky jobs launch`, which starts anew",
}
_RUN = """\
export PET_MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"
export PET_MASTER_PORT=29500
export PET_NODE_RANK="$SKYPILOT_NODE_RANK"
exec sh command.sh
"""


class SkyPilot:
    """See gpu_plan.executor.engines.engine."""

    name = "skypilot"
    title = "SkyPilot"
    keys = _RESOURCES
    flags = frozenset({"use-spot"})
    submit_file = "task.yaml"

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        import yaml

        return {self.submit_file: yaml.safe_dump(task(shape, settings), sort_keys=False, default_flow_style=False)}

    def command(self, folder: Path) -> Sequence[str]:
        return ("sky", "launch", "--workdir", str(folder), str(folder / self.submit_file))

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  sky launch {self.submit_file}, in this folder; on spot machines: sky jobs launch",
            "Look:    sky queue, sky logs; sky jobs queue, sky jobs logs",
            "End:     sky cancel, sky down; sky jobs cancel",
            "`setup` of task.yaml makes python with torch and accelerate, where the image has none.",
        )


def task(shape: Shape, settings: Settings) -> dict[str, object]:
    """The task as plain values. Pure."""
    resources: dict[str, object] = {}
    if shape.gpu is not None and "instance-type" not in settings.values:
        resources["accelerators"] = f"{shape.gpu}:{shape.gpus_per_node}"
    for key, value in settings.values.items():
        resources[key.replace("-", "_")] = value == "true" if key in ENGINE.flags else value
    if "disk_size" in resources and str(resources["disk_size"]).isdigit():
        resources["disk_size"] = int(str(resources["disk_size"]))
    return {
        "name": shape.name,
        "workdir": ".",
        "num_nodes": shape.nodes,
        **({"resources": resources} if resources else {}),
        **({"envs": dict(sorted(settings.environment.items()))} if settings.environment else {}),
        **({"setup": "\n".join(settings.setup) + "\n"} if settings.setup else {}),
        "run": _RUN,
    }


ENGINE = SkyPilot()
