"""Which module stands where, for layouts that part the model by modules."""

from collections.abc import Sequence

from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.inference import DevicePlacement, Placement
from gpu_plan.planner.search.generation.judgement import GenerationJudgement


def stage_placement(spec: ModelSpec, judged: Sequence[GenerationJudgement], count: int) -> Placement:
    """Stages as transformers cuts them: embedding first, equal runs of layers, norm and head last.

    `judged`: the first stage, a middle one where there is one, and the last. transformers
    distributed/pipeline_parallel.py: layer_range_for_rank gives the last stage what the division leaves.
    """
    layers = _layers(spec)
    each = len(layers) // count
    device_map: dict[str, str] = {}
    for name in _units(spec, layers):
        if name in layers:
            device_map[name] = f"cuda:{min(layers.index(name) // each, count - 1)}"
        else:
            device_map[name] = "cuda:0" if "embed" in name.rpartition(".")[2] else f"cuda:{count - 1}"
    figures = [judged[0], *([judged[1]] * (count - 2) if count > 2 else []), judged[-1]]
    return Placement(
        device_map=device_map,
        devices=tuple(
            DevicePlacement(
                device=f"cuda:{rank}",
                weight_bytes=judgement.weight_bytes,
                kv_cache_bytes=judgement.kv_cache_bytes,
                peak_bytes=judgement.profile.peak_allocated_bytes,
                capacity_bytes=judgement.capacity_bytes,
            )
            for rank, judgement in enumerate(figures)
        ),
        boundaries=count - 1,
    )


def _layers(spec: ModelSpec) -> list[str]:
    """Names of the decoder's layers, in order."""
    names = dict.fromkeys(
        ".".join(parts[: parts.index("layers") + 2])
        for parts in (parameter.name.split(".") for parameter in spec.parameters)
        if "layers" in parts[:-1]
    )
    return list(names)


def _units(spec: ModelSpec, layers: Sequence[str]) -> list[str]:
    """Layers, and every other module with parameters of its own, in the order of the parameters."""
    units: dict[str, None] = {}
    for parameter in spec.parameters:
        layer = next((name for name in layers if parameter.name.startswith(name + ".")), None)
        units[layer or parameter.name.rpartition(".")[0]] = None
    return list(units)
