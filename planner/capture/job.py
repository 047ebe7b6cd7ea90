"""A training script as the subject of the main job."""

from collections.abc import Callable
from pathlib import Path

from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.capture.workload import differences, overlay, stored_otherwise, with_captured_basis
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.shipped.needed import needs_tracing
from gpu_plan.planner.workload.training import Workload

_SECONDS, _FOLLOWED_SECONDS = 180.0, 720.0
"""Of processor time until the first step, and until the third of a check."""


OpenCaptures = Callable[[Request, Cluster, Path, Note], CapturedProvider]
"""Gives what a training script was seen to do."""


def captured_job(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    given: Given,
    note: Note,
    open_provider: OpenCaptures | None = None,
) -> tuple[CapturedProvider, ModelSpec, Workload]:
    """Runs the script to its first step; gives the provider of its traces, its model and its workload.

    CaptureError in one line where the script cannot be captured.
    """
    assert source.path is not None
    needs_tracing(source.id, "a script's step is traced")
    provider = (open_provider or provider_of)(request, cluster, source.path, note)
    facts, spec = provider.facts(), provider.spec()
    workload = make_workload(overlay(given, facts, source.id, cluster.world_size), request.pinned, cluster, spec)
    asked = {name: getattr(given, name) for name in ("precision", "optimizer", "seq_len", "checkpointing", "attention")}
    for difference in differences(asked, facts):
        note(f"{source.id}: {difference.line()}")
    otherwise = stored_otherwise(spec, facts)
    if otherwise is not None:
        note(f"{source.id}: {otherwise}")
    return provider, spec, with_captured_basis(workload, given, facts)


def provider_of(request: Request, cluster: Cluster, script: Path, note: Note) -> CapturedProvider:
    """What runs `script` with the request's arguments as on one rank of the cluster."""
    asked = capture_request(request, cluster, script)
    return CapturedProvider(request=asked, device=device_kind(cluster.gpu), use_cache=request.use_cache, note=note)


def capture_request(request: Request, cluster: Cluster, script: Path) -> CaptureRequest:
    """One run of `script` with the request's arguments as on one rank of the cluster."""
    return CaptureRequest(
        script=str(script),
        arguments=request.script_words,
        working_directory=str(Path.cwd()),
        device=planned_device(cluster),
        world_size=cluster.world_size,
        follow=request.follow,
        seconds=request.script_seconds or (_FOLLOWED_SECONDS if request.follow else _SECONDS),
        standin=request.standin,
        unwalled=request.unwalled,
    )


def planned_device(cluster: Cluster) -> PlannedDevice:
    """What the script is told of the devices it is planned for."""
    kind = device_kind(cluster.gpu)
    major, minor = kind.capability or (None, 0)
    return PlannedDevice(
        name=cluster.gpu.name,
        total_bytes=cluster.capacity_bytes,
        capability_major=major,
        capability_minor=minor,
        sm_count=kind.sm_count,
        count=cluster.gpus_per_node,
        bf16=cluster.gpu.supports_bf16,
    )
