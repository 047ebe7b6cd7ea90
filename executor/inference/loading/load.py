"""Loads the model where the plan puts it: one process over a device map, or a shard or a stage in each of several."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_plan.executor.inference.job import CPU, DISK, InferenceJob, Place
from gpu_plan.executor.inference.loading.checkpoint import Checkpoint
from gpu_plan.executor.inference.loading.model import check_checkpoint, check_device_map, empty_model, tied_places
from gpu_plan.executor.inference.loading.pages import forget_pages
from gpu_plan.executor.inference.loading.piped import load_piped
from gpu_plan.executor.inference.loading.spread import check_spread, has_stages
from gpu_plan.executor.inference.loading.stages import StageCache, place_stages, stage_of
from gpu_plan.planner.errors import InputError, PreflightError


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to generate."""

    model: Any
    device: Any
    """torch.device that its inputs go to."""
    way: str
    """How it was loaded, for the record."""

    def cache(self) -> Any | None:
        """A KV cache where the model's own would be wrong: on a later pipeline stage."""
        stage = stage_of(self.model)
        return None if stage is None else StageCache.of(self.model, stage)


def load(job: InferenceJob, checkpoint: Checkpoint, folder: Path | None) -> Loaded:
    """The model of this rank. `folder`: for what the map puts on disk.

    Raises InputError where the checkpoint, the map and the class do not go together; PreflightError where the
    installed transformers cannot spread this class over processes.
    """
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
    if job.layout in ("tensor", "pipeline"):
        return _distributed(job, checkpoint)
    return _mapped(job, checkpoint, folder)


def _mapped(job: InferenceJob, checkpoint: Checkpoint, folder: Path | None) -> Loaded:
    import torch

    model = empty_model(checkpoint, job)
    fit = check_checkpoint(model, checkpoint)
    places = job.places
    check_device_map(model, places)
    main = torch.device(next((place for place in places.values() if isinstance(place, int)), CPU))
    # accelerate 1.15 writes a tied tensor to disk under the one name that is stored, and looks for the other.
    if not fit.direct or DISK in tied_places(model, places):
        return Loaded(model=_converted(job, checkpoint, folder, type(model)), device=main, way="from_pretrained")
    from accelerate import load_checkpoint_and_dispatch

    # offload_state_dict would write the weights that stay in RAM to a folder under /tmp first.
    model = load_checkpoint_and_dispatch(
        model,
        str(checkpoint.entry),
        device_map=_several(model, places, main),
        offload_folder=None if folder is None else str(folder),
        offload_state_dict=False,
        skip_keys=getattr(model, "_skip_keys_device_placement", None),
        force_hooks=False,
    )
    _forget(checkpoint)
    return Loaded(model=model, device=main, way="load_checkpoint_and_dispatch")


def _several(model: Any, places: Mapping[str, Place], main: Any) -> dict[str, Any]:
    """The map; one that has the disk alone also puts a module without weights where the others compute.

    accelerate takes a map's only place for a torch device (utils/modeling.py: load_state_dict; big_modeling.py:
    dispatch_model), which `disk` is not.
    """
    if set(places.values()) != {DISK}:
        return dict(places)
    bare = next(
        (name for name, module in model.named_modules() if name and not any(True for _ in module.parameters())), None
    )
    if bare is None:
        raise InputError(f"the device map puts all of {type(model).__name__} on disk: leave one module in memory")
    return {**places, bare: main.index if main.type == "cuda" else CPU}


def _converted(job: InferenceJob, checkpoint: Checkpoint, folder: Path | None, kind: Any) -> Any:
    """Through transformers, which knows older names, fused experts, quantised weights and what stays in float32."""
    import torch

    model, found = kind.from_pretrained(
        str(checkpoint.folder),
        dtype=getattr(torch, job.dtype or checkpoint.dtype),
        device_map=dict(job.places),
        offload_folder=None if folder is None else str(folder),
        output_loading_info=True,
        **_common(job),
    )
    _nothing_missing(checkpoint, found)
    return model.eval()


def _distributed(job: InferenceJob, checkpoint: Checkpoint) -> Loaded:
    """Shards by the class's own plan (`base_model_tp_plan`), or stages: each rank reads its part only."""
    import torch

    empty = empty_model(checkpoint, job)
    check_spread(empty, job)
    from transformers.distributed import DistributedConfig

    kind = type(empty)
    if job.pipeline_parallel > 1 and not has_stages(empty):
        piped = load_piped(job, checkpoint, kind, _common(job))
        return Loaded(model=piped, device=torch.device(CPU), way="prepare_pippy")
    sizes = {"tp_size": job.tensor_parallel, "pp_size": job.pipeline_parallel}
    if job.pipeline_parallel > 1:
        place_stages(job.stages)
    try:
        model, found = kind.from_pretrained(
            str(checkpoint.folder),
            dtype=getattr(torch, job.dtype or checkpoint.dtype),
            distributed_config=DistributedConfig(**sizes),
            output_loading_info=True,
            **_common(job),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise PreflightError(f"{kind.__name__} cannot be run as {job.layout} parallel: {error}") from None
    _nothing_missing(checkpoint, found)
    _forget(checkpoint)
    device = next(parameter for parameter in model.parameters()).device
    return Loaded(model=model.eval(), device=device, way=f"from_pretrained, {job.layout} parallel")


def _forget(checkpoint: Checkpoint) -> None:
    """Pages that were read to be copied elsewhere: to the disk, or as another rank's columns of a weight."""
    forget_pages({checkpoint.folder / tensor.shard for tensor in checkpoint.tensors.values()})


def _common(job: InferenceJob) -> dict[str, Any]:
    found: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    if job.attention:
        found["attn_implementation"] = job.attention
    return found


def _nothing_missing(checkpoint: Checkpoint, found: dict[str, Any]) -> None:
    for what, said in (("missing_keys", "lacks"), ("mismatched_keys", "has in another shape")):
        names = sorted(str(name) for name in found.get(what) or ())
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(f"{checkpoint.folder} {said} {names[0]}{more}: fetch it again")
