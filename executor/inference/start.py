"""From what the user asked and what the plan says to a session, everything checked before anything is written (I/O)."""

import os
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.inference.job import DISK, InferenceJob, inference_job
from gpu_plan.executor.inference.loading.checkpoint import Checkpoint, named_folder, open_checkpoint
from gpu_plan.executor.inference.loading.model import bytes_by_place, check_checkpoint, check_device_map, empty_model
from gpu_plan.executor.inference.loading.random_weights import random_weights
from gpu_plan.executor.inference.loading.room import OFFLOAD_FOLDER, check_devices, check_disk
from gpu_plan.executor.inference.loading.room import offload_parent as own_folder
from gpu_plan.executor.inference.loading.spread import check_spread
from gpu_plan.executor.inference.options import Request, read_device_map
from gpu_plan.executor.inference.prompting.progress import Progress
from gpu_plan.executor.inference.prompting.prompts import Prompts, read_prompts
from gpu_plan.executor.inference.prompting.ranks import ranks_of
from gpu_plan.executor.inference.prompting.tokens import Tokens, check_lengths, tokenise
from gpu_plan.executor.inference.session import Session, identity
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.plan.files import load as load_plan


def begin(request: Request, *, attempt: int) -> Session | None:
    """This rank's session; None where the output is there already, of a run that is resumed.

    A restarted attempt goes on with what the first has done, whatever was asked of the first.
    """
    request = request if attempt == 1 else replace(request, force=False, resume=True)
    job = planned(request)
    ranks = ranks_of(job)
    checkpoint = open_checkpoint(folder_of(job))
    prompts = read_prompts(request.prompts)
    new_tokens, tokens = ready(request, job, checkpoint, prompts)
    progress = Progress(
        output=request.output,
        count=len(prompts.items),
        job=identity(checkpoint, prompts, new_tokens, request.sampling),
    )
    # A first look by rank 0 alone: once it has made the folder, the others would find "a run that was cut short".
    if ranks.rank == 0:
        progress.check(force=request.force, resume=request.resume)
        if not progress.finished or request.force:
            progress.begin(force=request.force)
    ranks.meet()
    if not progress.folder.exists():
        return None
    return Session(
        job=job,
        checkpoint=checkpoint,
        prompts=prompts,
        tokens=tokens,
        progress=progress,
        new_tokens=new_tokens,
        sampling=request.sampling,
        offload=offload_parent(request),
        ranks=ranks,
    )


def planned(request: Request) -> InferenceJob:
    """The plan of this process, with the user's own words over it."""
    folder = os.environ.get(names.RUN_FOLDER)
    path = request.plan_file or (Path(folder) / names.PLAN_FILE if folder else None)
    if path is None:
        raise UsageError("no plan: start it by `plan ... --execute`, or name one with --plan-file")
    return adjusted(inference_job(load_plan(path)), request)


def adjusted(job: InferenceJob, request: Request) -> InferenceJob:
    """The job with what the user's own words say instead."""
    return replace(
        job,
        model=str(random_weights(request.model or job.model)) if request.random_weights else request.model or job.model,
        device_map=read_device_map(request.device_map) if request.device_map else job.device_map,
        batch=request.batch or job.batch,
    )


def folder_of(job: InferenceJob) -> Path:
    """Where the weights lie: a folder, or the cache of a hub id. UnreachableError where they are not there."""
    folder = named_folder(job.model)
    if folder is not None:
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = snapshot_download(
            job.model, revision=job.revision, allow_patterns=["*.safetensors", "*.json", "*.model", "*.txt"]
        )
    except (HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise UnreachableError(f"the weights of {job.model} cannot be reached: {why}") from None
    return Path(found)


def ready(request: Request, job: InferenceJob, checkpoint: Checkpoint, prompts: Prompts) -> tuple[int, Tokens]:
    """New tokens for each prompt, and all prompts' tokens. UsageError or InputError in one line."""
    new_tokens = request.new_tokens or job.new_tokens
    if new_tokens is None:
        raise UsageError("how many new tokens? the plan does not say: add --new-tokens after --")
    tokens = tokenise(prompts, checkpoint, ignore_stop=request.ignore_stop)
    check_lengths(prompts, tokens, checkpoint, new_tokens, job.context)
    return new_tokens, tokens


def offload_parent(request: Request) -> Path:
    """Folder that holds what goes to disk."""
    folder = os.environ.get(names.RUN_FOLDER)
    if request.offload_folder is not None:
        return own_folder(request.offload_folder, os.environ.get(names.RUN_ID) or str(os.getpid()))
    return Path(folder) / OFFLOAD_FOLDER if folder else request.output.with_name(request.output.name + ".offload")


def check_all(request: Request, job: InferenceJob, room: Path) -> None:
    """Everything that a run would stumble over, before there is one. `room`: where weights would go to disk.

    InputError, UsageError, UnreachableError, or PreflightError for what this machine has no room for.
    """
    checkpoint = open_checkpoint(folder_of(job))
    prompts = read_prompts(request.prompts)
    new_tokens, _ = ready(request, job, checkpoint, prompts)
    Progress(
        output=request.output,
        count=len(prompts.items),
        job=identity(checkpoint, prompts, new_tokens, request.sampling),
    ).check(force=request.force, resume=request.resume)
    _check_fit(job, checkpoint, room)


def check_model(job: InferenceJob, room: Path) -> None:
    """As `check_all`, of the plan, its checkpoint and this machine alone."""
    _check_fit(job, open_checkpoint(folder_of(job)), room)


def _check_fit(job: InferenceJob, checkpoint: Checkpoint, room: Path) -> None:
    model = empty_model(checkpoint, job)
    check_checkpoint(model, checkpoint)
    if job.layout in ("tensor", "pipeline"):
        check_spread(model, job)
    else:
        places = job.places
        check_device_map(model, places)
        weights = bytes_by_place(model, places)
        check_disk(room, weights.get(DISK, 0) * job.replicas)
        check_devices(weights, ranks=job.replicas)
