"""The model's class without its weights, and whether a checkpoint and a device map fit it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.executor.inference.job import CPU, DISK, InferenceJob, Place
from gpu_plan.executor.inference.loading.checkpoint import Checkpoint, bits_of
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.units import ceil_div

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a checkpoint's names meet the model's."""

    direct: bool
    """Whether every tensor has its place under its own name; else transformers' own loading converts them."""
    unused: tuple[str, ...] = ()
    """Stored tensors that the model has no place for."""


def empty_model(checkpoint: Checkpoint, job: InferenceJob) -> Any:
    """The model on the meta device, its small computed buffers real. InputError for a config that makes no model.

    As `accelerate.init_empty_weights` and `from_config` do it; nothing of the model's folder is executed.
    """
    import torch
    from accelerate import init_empty_weights

    from gpu_plan.planner.model.build.classes import config_class_of, model_class_of

    values = dict(checkpoint.config)
    config_class = config_class_of(values)
    config = config_class.from_dict(values)
    model_class, _ = model_class_of(values, config_class)
    kwargs = {"attn_implementation": job.attention} if job.attention else {}
    try:
        with init_empty_weights():
            model = model_class._from_config(config, dtype=getattr(torch, job.dtype or checkpoint.dtype), **kwargs)
    except (ValueError, TypeError, AttributeError, KeyError, ImportError) as error:
        raise InputError(f"no {model_class.__name__} can be made of {checkpoint.folder}: {error}") from None
    model.tie_weights()
    if not model.can_generate():
        raise InputError(f"{model_class.__name__} generates no text: prompts need a model with a language head")
    return model.eval()


def check_checkpoint(model: Any, checkpoint: Checkpoint) -> Fit:
    """InputError where the checkpoint lacks a tensor of the model, or has it in another shape."""
    if checkpoint.quantised or _keeps_float32(model, checkpoint):
        return Fit(direct=False)
    own = _own_tensors(model)
    stored = checkpoint.tensors
    missing = [names for names in own if not any(name in stored for name in names)]
    known = {name for names in own for name in names} | set(dict(model.named_buffers()))
    unused = tuple(name for name in stored if name not in known)
    if missing and unused:
        return Fit(direct=False, unused=unused)  # older names or split experts, which transformers converts
    if missing:
        listed = ", ".join(names[0] for names in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise InputError(f"{checkpoint.folder} lacks {listed}{more}, which {type(model).__name__} has: fetch it again")
    for names, shape in own.items():
        for name in names:
            if name in stored and stored[name].shape != shape:
                raise InputError(
                    f"{checkpoint.folder}: {name} is {list(stored[name].shape)} in {stored[name].shard}, the model's is"
                    f" {list(shape)}: config.json and weights are not of one model"
                )
    return Fit(direct=True, unused=unused)


def _own_tensors(model: Any) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Shape of every tensor that must be stored, by all its names: tied ones have several."""
    by_id: dict[int, list[str]] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        by_id.setdefault(id(tensor), []).append(name)
        shapes[id(tensor)] = tuple(tensor.shape)
    return {tuple(names): shapes[key] for key, names in by_id.items()}


def _keeps_float32(model: Any, checkpoint: Checkpoint) -> bool:
    """Whether transformers loads some modules in another type than the rest."""
    strict = bool(getattr(model, "_keep_in_fp32_modules_strict", None))
    loose = bool(getattr(model, "_keep_in_fp32_modules", None)) and checkpoint.dtype == "float16"
    return checkpoint.dtype != "float32" and (strict or loose)


def check_device_map(model: Any, places: Mapping[str, Place]) -> None:
    """InputError for a map that names no module, leaves a tensor without a place, or splits what cannot be split."""
    known = {name for name, _ in model.named_modules()} | set(model.state_dict())
    for name, place in places.items():
        if name not in known:
            hint = did_you_mean(name, sorted(known), limit=1)
            raise InputError(f"the device map names {name!r}, which {type(model).__name__} does not have.{hint}")
        if not (isinstance(place, int) and not isinstance(place, bool) and place >= 0) and place not in (CPU, DISK):
            raise InputError(f"the device map puts {name or 'the model'} on {place!r}: a GPU's number, cpu or disk")
    for name in model.state_dict():
        if place_of(name, places) is None:
            raise InputError(f"the device map has no place for {name}")
    _check_blocks(model, places)
    _check_tied(model, places)


def place_of(name: str, places: Mapping[str, Place]) -> Place | None:
    """Where a tensor lies: what the longest of the map's names that hold it says."""
    while name:
        if name in places:
            return places[name]
        name = name.rpartition(".")[0]
    return places.get("")


def bytes_by_place(model: Any, places: Mapping[str, Place]) -> dict[Place, int]:
    """Bytes of weights in each place, tied ones once."""
    found: dict[Place, int] = {}
    for names, tensor in _tensors(model):
        place = place_of(names, places)
        if place is not None:
            size = ceil_div(tensor.numel() * bits_of(str(tensor.dtype).removeprefix("torch.")), 8)
            found[place] = found.get(place, 0) + size
    return found


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _check_blocks(model: Any, places: Mapping[str, Place]) -> None:
    """A residual block computes on one device, wherever its weights rest."""
    whole = set(getattr(model, "_no_split_modules", None) or ())
    for name, module in model.named_modules():
        if type(module).__name__ not in whole:
            continue
        devices = {place_of(f"{name}.{inner}", places) for inner, _ in module.named_parameters()}
        gpus = sorted(place for place in devices if isinstance(place, int))
        if len(gpus) > 1:
            raise InputError(f"the device map splits {name} over GPUs {gpus}: a {type(module).__name__} stays whole")


def tied_places(model: Any, places: Mapping[str, Place]) -> set[Place | None]:
    """Where tensors lie that have several names."""
    return {place_of(names[0], places) for names in _own_tensors(model) if len(names) > 1}


def _check_tied(model: Any, places: Mapping[str, Place]) -> None:
    for names in _own_tensors(model):
        found = {name: place_of(name, places) for name in names}
        if len(set(found.values())) > 1:
            said = ", ".join(f"{name} on {place}" for name, place in found.items())
            raise InputError(f"the device map puts one tensor on several devices: {said}; tied weights need one place")
