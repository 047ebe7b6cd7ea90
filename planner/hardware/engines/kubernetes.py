"""Kubernetes' nodes, as `kubectl get nodes` has them: allocatable devices and memory, labels that name them (I/O).

Fields are those of core/v1 Node. Labels: NVIDIA's GPU feature discovery (nvidia.com/gpu.product), AMD's labeller, GKE,
EKS, Karpenter, CoreWeave and SkyPilot, each as its own documents have it.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.hardware.engines.nodes import Node, known_name

NAME = "k8s"
_TIMEOUT = 60.0
_DEVICES = ("nvidia.com/gpu", "amd.com/gpu")
_LABELS = (
    "nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name", "k8s.amazonaws.com/accelerator", "gpu.nvidia.com/class",
    "skypilot.co/accelerator",
)  # fmt: skip
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"(\d+)(|k|M|G|T|Ki|Mi|Gi|Ti)")


def split(place: str) -> tuple[str, str]:
    """The label selector and the devices' name of what follows `k8s:`: `pool=a`, `H100`, `pool=a:H100`."""
    head, colon, name = place.rpartition(":")
    if colon:
        return head, name
    return (place, "") if "=" in place or "/" in place else ("", place)


def nodes_of(selector: str) -> list[Node]:
    """Nodes that are ready and take pods. UnreachableError where kubectl or the cluster is not there."""
    words = ["--selector", selector] if selector else []
    command = ["kubectl", "get", "nodes", "--output=json", "--request-timeout=20s", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise UnreachableError("--gpus k8s: kubectl is not on PATH: run this where the cluster's client is") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"--gpus k8s: kubectl does not answer: {error}") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UnreachableError(f"--gpus k8s: kubectl: {(lines or ['it says nothing'])[-1][:300]}")
    return parse(done.stdout)


def parse(text: str) -> list[Node]:
    """From `kubectl get nodes -o json`. InputError for another text."""
    try:
        items = json.loads(text)["items"]
        return [_node(item) for item in items if _takes_pods(item)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"--gpus k8s: kubectl gives no list of nodes: {text[:80]!r}") from None


def _takes_pods(item: Mapping[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready and not item.get("spec", {}).get("unschedulable", False)


def _node(item: Mapping[str, Any]) -> Node:
    labels = item["metadata"].get("labels", {})
    has = item["status"].get("allocatable", {})
    count = next((int(has[key]) for key in _DEVICES if str(has.get(key, "0")) != "0"), 0)
    told = [str(labels[key]) for key in _LABELS if labels.get(key)]
    return Node(
        name=str(item["metadata"]["name"]),
        gpu=known_name(*told) if count else None,
        gpus=count,
        ram_bytes=_bytes(str(has.get("memory", ""))),
    )


def _bytes(text: str) -> int | None:
    match = _QUANTITY.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def pods(environment: Mapping[str, str] = os.environ) -> int | None:
    """Nodes of the TrainJob in whose pod this process is (Kubeflow's torch plugin sets PET_NNODES); None elsewhere."""
    text = environment.get("PET_NNODES", "")
    return int(text) if environment.get("KUBERNETES_SERVICE_HOST") and text.isdigit() and int(text) > 0 else None
