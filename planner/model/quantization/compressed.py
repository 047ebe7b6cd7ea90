"""compressed-tensors: which groups of a `quantization_config` store what, and which modules they mean.

vllm-project/compressed-tensors@ac8e2ba: quantization/quant_config.py and quantization/quant_args.py.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import shown
from gpu_plan.planner.model.quantization.scheme import Method, Scheme
from gpu_plan.planner.model.quantization.values import flag, names

_FORMATS = ("float-quantized", "int-quantized", "naive-quantized", "pack-quantized")


def compressed_scheme(values: dict[str, Any], where: str) -> Scheme:
    """The scheme of a config with one group of weights; more than one is refused in one line."""
    groups = values.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise InputError(f"{where}: config_groups is {shown(groups)}: it must describe at least one group")
    if len(groups) > 1:
        raise InputError(f"{where}: {len(groups)} config_groups are not planned yet: one is")
    name, group = next(iter(groups.items()))
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise InputError(f"{where}: config_groups.{name} quantises no weights")
    layout = values.get("format")
    if layout not in _FORMATS:
        raise InputError(f"{where}: format is {shown(layout)}: {', '.join(_FORMATS)} are known")
    names(group, "targets", f"{where}.config_groups.{name}")
    return _of_group(values, weights, group, layout, f"{where}.config_groups.{name}.weights")


def _of_group(
    values: dict[str, Any], weights: Mapping[str, Any], group: Mapping[str, Any], layout: str, where: str
) -> Scheme:
    kind, bits, strategy = weights.get("type"), weights.get("num_bits"), weights.get("strategy")
    if kind not in ("int", "float") or type(bits) is not int or not 1 <= bits <= 8 or (kind == "float" and bits != 8):
        raise InputError(
            f"{where}: {shown(bits)} bits of type {shown(kind)} are not planned: int of 1 to 8, float of 8"
        )
    if strategy not in ("tensor", "channel", "group"):
        raise InputError(f"{where}: strategy is {shown(strategy)}: tensor, channel and group are planned")
    size = weights.get("group_size")
    if strategy == "group" and (type(size) is not int or size < 1):
        raise InputError(f"{where}: group_size is {shown(size)}: write a positive number")
    if kind == "int" and bits < 8 and layout != "pack-quantized":
        raise InputError(f"{where}: {bits}-bit integers are stored as pack-quantized, not {layout}")
    inputs = group.get("input_activations")
    dynamic = isinstance(inputs, Mapping) and flag(inputs, "dynamic", where)
    scale = {"tensor": "tensor", "channel": "channel"}.get(strategy, str(size))
    return Scheme(
        method=Method.COMPRESSED,
        word=f"fp8-{scale}" if kind == "float" else f"int{bits}-{scale}",
        bits=bits,
        group_size=size if strategy == "group" else None,
        block=(1, 0) if strategy == "channel" else None,
        number=str(kind),
        prequantised=True,
        symmetric=flag(weights, "symmetric", where, default=True),
        activations=None if not isinstance(inputs, Mapping) else "dynamic" if dynamic else "static",
        skip=names(values, "ignore", "config: quantization_config"),
        config=MappingProxyType(values),
    )


def targets(scheme: Scheme) -> tuple[str, ...]:
    """Class names and `re:` patterns of the modules that the scheme's group means."""
    groups: Mapping[str, Any] = scheme.config.get("config_groups") or {}
    group: Mapping[str, Any] = next(iter(groups.values()), {})
    return tuple(group.get("targets") or ("Linear",))
