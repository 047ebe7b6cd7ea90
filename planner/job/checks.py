"""Whether a saved plan still holds here: the model's config, the versions, the machine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import InputError, PlanError, PreflightError, UnreachableError

if TYPE_CHECKING:
    from gpu_plan.planner.plan.saved import SavedPlan

_ROOM = 0.01
"""Share by which a GPU's memory may differ: drivers reserve different amounts."""


def check_plan(saved: "SavedPlan", where: str) -> str | None:
    """InputError where what the plan was made from has changed, with the difference; a note, or None.

    A model that cannot be reached from here is not compared: the note says so.
    """
    from gpu_plan.planner.cache_dir import versions
    from gpu_plan.planner.plan.saved import stale_reasons

    reasons = list(stale_reasons(saved, versions=versions()))
    note = None
    try:
        digest = _config_digest(saved)
        if digest != saved.model.config_digest:
            script = saved.model.id.endswith(".py")
            reasons.append(f"{saved.model.id} has changed" if script else f"the config of {saved.model.id} is another")
    except UnreachableError:
        note = f"{saved.model.id} cannot be reached from here: whether its config is still the plan's is not known"
    except PlanError as error:
        reasons.append(f"{saved.model.id} can no longer be planned: {error}")
    if reasons:
        raise InputError(f"{where} is stale: {'; '.join(reasons)}. Make it again: {saved.command}")
    return note


def _config_digest(saved: "SavedPlan") -> str:
    from gpu_plan.planner.model.source.resolve import resolve

    revision = saved.model.revision if saved.model.source in ("cache", "hub") else None
    # Nothing is executed here: a config's digest is compared, whatever code the model would need.
    return resolve(saved.model.id, trust_remote_code=True, revision=revision, read_headers=False).digest


def check_machine(saved: "SavedPlan") -> None:
    """PreflightError where this machine's GPUs are not those of the plan. CPU processes run anywhere."""
    if saved.cluster.get("gpu_id") == "cpu":
        return
    from gpu_plan.planner.hardware.cluster import cluster_document
    from gpu_plan.planner.hardware.detect import detect_cluster

    differences = machine_differences(saved.cluster, cluster_document(detect_cluster()))
    if differences:
        spec = saved.cluster["spec"]
        raise PreflightError(f"the plan is for {spec}: {'; '.join(differences)}. Plan for this machine: --gpus auto")


def check_port(hosts: Sequence[str], machine_rank: int, port: int) -> None:
    """PreflightError where the first of several hosts cannot open the rendezvous port: the others would wait for it."""
    if len(hosts) < 2 or machine_rank != 0:
        return
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise PreflightError(
                f"port {port}, at which the hosts meet, cannot be opened ({error.strerror}): "
                f"name another, --hosts {hosts[0].partition(':')[0]}:PORT,..., on every host alike"
            ) from None


def machine_differences(planned: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """How one node of the planned cluster differs from the machine, where that matters; more GPUs do not."""
    if here["gpu_id"] == "cpu":
        return ["this machine has no GPU"]
    found = []
    if here["gpu_id"] != planned["gpu_id"]:
        found.append(f"this machine has {here['gpu_name']}")
    wanted, present = _number(planned, "gpus_per_node"), _number(here, "gpus_per_node")
    if present < wanted:
        found.append(f"this machine has {present} GPU{'s' * (present != 1)}, {wanted} on each node are planned")
    memory, usable = _number(planned, "usable_bytes"), _number(here, "usable_bytes")
    if usable < memory * (1 - _ROOM):
        found.append(f"its GPUs have {usable / 2**30:.1f} GiB usable, {memory / 2**30:.1f} are planned")
    return found


def _number(cluster: Mapping[str, object], key: str) -> int:
    return int(str(cluster[key]))
